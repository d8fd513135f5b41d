"""What a snapshot lacks or says twice, in one line each, with counts."""

from typing import Final

import numpy as np

from fsdp_profile.ingest.snapshot.columns import EventColumns, SegmentColumns
from fsdp_profile.ingest.snapshot.replay import NONE, Bools, Int64s, Kind, Lives, Series

NO_TIMELINE: Final = "no timeline: history was not recorded"
MAX_NAMES: Final = 5
MAX_NAME_CHARS: Final = 40


def warnings_of(
    events: EventColumns,
    held: SegmentColumns,
    lives: Lives,
    active: Series,
    reserved: Series,
    *,
    num_negative_reserved: int,
) -> tuple[str, ...]:
    """All warnings about one device's history."""
    lines = [*_about_events(events), *_about_segments(held)]
    if not len(events.kind):
        return (NO_TIMELINE, *lines)
    lines += _about_lives(lives)
    if num_negative_reserved:
        lines.append(f"events with reserved below 0: {num_negative_reserved}; segment events are missing")
    elif above := int((active.values > reserved.values).sum()):
        lines.append(f"events with active above reserved: {above}; segment events are missing")
    return tuple(lines)


def _about_events(events: EventColumns) -> list[str]:
    lines = []
    if events.unknown_actions:
        lines.append(f"events with unknown actions, ignored: {_counted(events.unknown_actions)}")
    if events.num_without_time:
        lines.append(f"events without time: {events.num_without_time}; each takes that of the one before")
    if events.num_back_in_time:
        lines.append(f"events back in time: {events.num_back_in_time}; each takes the latest time before it")
    completed = int((events.kind == Kind.FREE_COMPLETED).sum())
    if completed and not (events.kind == Kind.FREE_REQUESTED).any():
        lines.append(
            f"frees completed, none requested on record: {completed}; "
            "those blocks count as allocated until the free is completed"
        )
    return lines


def _about_segments(held: SegmentColumns) -> list[str]:
    lines = []
    if not held.blocks.known:
        lines.append("no segments in the snapshot: blocks that no event frees are taken as live at the end")
    if held.unknown_states:
        lines.append(f"blocks in unknown states, ignored: {_counted(held.unknown_states)}")
    if held.num_twice:
        lines.append(f"blocks at the address of another, ignored: {held.num_twice}")
    told = held.reported_active_bytes != NONE
    reported = int(held.reported_active_bytes[told].sum())
    counted = int((held.allocated_bytes + held.pending_free_bytes)[told].sum())
    if reported != counted:
        lines.append(f"active bytes in blocks: {counted:,}; the segments report {reported:,}, which is not used")
    return lines


def _about_lives(lives: Lives) -> list[str]:
    lines = []
    if lives.preexisting.any():
        freed = int((lives.preexisting & (lives.first_event != NONE)).sum())
        count = _blocks(lives.size_bytes, lives.preexisting)
        lines.append(f"blocks from before the recording: {count}, of them with a free without alloc: {freed}")
    lost_alloc = (lives.alloc_event == NONE) & ~lives.preexisting
    if lost_alloc.any():
        count = _blocks(lives.size_bytes, lost_alloc)
        lines.append(f"blocks whose alloc is missing: {count}; they begin when their address was freed")
    if lives.free_unreported.any():
        count = _blocks(lives.size_bytes, lives.free_unreported)
        lines.append(
            f"blocks whose completed free is missing: {count}; they end at its request, "
            "at the next use of their address or at the last event"
        )
    return lines


def _blocks(size_bytes: Int64s, chosen: Bools) -> str:
    return f"{int(np.count_nonzero(chosen))} ({int(size_bytes[chosen].sum()):,} bytes)"


def _counted(counts: dict[str, int]) -> str:
    """Their sum, and the commonest first; the names come from the file and are kept to one line."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    names = ", ".join(f"{name[:MAX_NAME_CHARS]!a} {count}" for name, count in ordered[:MAX_NAMES])
    more = f", {len(ordered) - MAX_NAMES} more" if len(ordered) > MAX_NAMES else ""
    return f"{sum(counts.values())} ({names}{more})"
