"""Lives of blocks and totals over time, from allocator events and the segments as they were at the end.

The end state is the anchor, and the events lead back from it, so a ring buffer that lost the beginning is
still exact: what is live at the end, or freed first, and was never allocated lived before the recording.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fsdp_profile.core.schema import NOT_FREED

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

BEFORE: Final = -1
"""`requested_event` of a block whose free was requested before the first event."""
NONE: Final = -1
"""No such event or block."""

MIN_BLOCK_BYTES: Final = 512  # caching allocator's rounding
MIB: Final = 1 << 20


class Kind(IntEnum):
    """What an event does, and (the last two) how a block stood at the end."""

    IGNORED = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_GROWS = 4
    SEGMENT_SHRINKS = 5
    LIVE_ALLOCATED = 6
    LIVE_PENDING = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class EndState:
    """The blocks in use when the snapshot was taken."""

    address: NDArray[np.uint64]
    """One row per block; no address twice."""
    size_bytes: Int64s
    requested_bytes: Int64s
    """What was asked for, before rounding."""
    pending: Bools
    """Freed, but a stream still holds it."""
    reserved_bytes: int
    """Sum over the segments."""
    known: bool
    """False when the snapshot came without segments: nothing is known about the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lives:
    """One row per life of a block, in the order of start."""

    address: NDArray[np.uint64]
    size_bytes: Int64s
    """As the allocator counts it. [Note: Sizes of blocks]"""
    requested_bytes: Int64s
    """As the event or, without one, the end state says."""
    alloc_event: Int64s
    """NONE when the alloc is not in the recording."""
    first_event: Int64s
    """The first event of this life; NONE when the block is known from the end state only."""
    end_row: Int64s
    """Row of the end state; NONE for what was not in use at the end."""
    start_event: Int64s
    requested_event: Int64s
    """Free requested; BEFORE, or NOT_FREED."""
    end_event: Int64s
    """Free completed; NOT_FREED."""
    preexisting: Bools
    """Lived before the recording; its start_event is 0."""
    free_unreported: Bools
    """Gone at the end or when its address was used again, but no completed free was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A total before the first event and after each."""

    start: int
    values: Int64s

    @property
    def end(self) -> int:
        """The total after the last event."""
        return int(self.values[-1]) if len(self.values) else self.start


@dataclass(frozen=True, kw_only=True, slots=True)
class _Marks:
    """What is known of each address in order: its events, and its block at the end as event number n."""

    kind: Int64s
    row: Int64s
    """Row of the events or, for LIVE_*, of the end state."""
    life: Int64s
    begins: Int64s
    """Mark with which each life begins."""
    first: Bools
    """Per life: the first of its address."""
    last: Bools
    """Per life: the last of its address."""

    def row_of(self, kind: Kind) -> Int64s:
        """Per life: the row of its mark of that kind, or NONE."""
        rows = np.full(len(self.begins), NONE, np.int64)
        chosen = self.kind == kind
        rows[self.life[chosen]] = self.row[chosen]
        return rows


def block_bytes(requested: Int64s, *, divisions: Int64s | None = None) -> Int64s:
    """Sizes of the blocks that hold the requested bytes.

    [Note: Sizes of blocks] Events carry what was asked for, the statistics count blocks, which are rounded.
    A block that was not worth splitting is larger still (by 1 MiB at most, without expandable segments):
    that is known only for those live at the end, whose size the snapshot records.

    Args:
        requested: bytes asked for.
        divisions: `roundup_power2_divisions` of the allocator's settings, per power of two from 1 MiB on.
    """
    sizes = np.maximum(-(-requested // MIN_BLOCK_BYTES), 1) * MIN_BLOCK_BYTES
    if divisions is None or not divisions.any():
        return sizes
    power = np.frexp(np.maximum(requested, 1).astype(np.float64))[1].astype(np.int64) - 1
    parts = divisions[np.clip(power - 20, 0, len(divisions) - 1)]
    step = np.maximum((np.int64(1) << power) // np.maximum(parts, 1), 1)
    applies = (parts > 1) & (requested > MIN_BLOCK_BYTES * parts)
    return np.where(applies, -(-requested // step) * step, sizes)


def replay_blocks(
    kind: Int64s,
    address: NDArray[np.uint64],
    size_bytes: Int64s,
    end: EndState,
    *,
    divisions: Int64s | None = None,
) -> Lives:
    """The lives of all blocks seen in the events or at the end.

    Where events are missing, the end state wins, and lives at one address never overlap. A life without a
    completed free ends at its requested free, else where its address is used again, else at the last event.

    Args:
        kind: `Kind` of each event, in order.
        address: of each event.
        size_bytes: of each event, as requested.
        end: the blocks in use at the end.
        divisions: see `block_bytes`.
    """
    marks = _marks(kind, address, end)
    alloc, requested = marks.row_of(Kind.ALLOC), marks.row_of(Kind.FREE_REQUESTED)
    completed = marks.row_of(Kind.FREE_COMPLETED)
    pending = marks.row_of(Kind.LIVE_PENDING)
    is_pending = pending != NONE
    live = np.maximum(pending, marks.row_of(Kind.LIVE_ALLOCATED))
    first_event = np.where(marks.kind[marks.begins] < Kind.LIVE_ALLOCATED, marks.row[marks.begins], NONE)
    preexisting = (alloc == NONE) & marks.first

    gone_by = len(kind) - 1 if end.known and len(kind) else NOT_FREED
    next_begins = np.append(marks.row[marks.begins[1:]], 0)
    end_event = np.select(
        [completed != NONE, live != NONE, ~marks.last & (requested == NONE), marks.last & (not end.known)],
        [completed, NOT_FREED, next_begins, NOT_FREED],
        default=np.where(requested != NONE, requested, gone_by),
    )
    # the allocator reports each request before its completion: without one it came before the recording
    requests_recorded = bool((kind == Kind.FREE_REQUESTED).any())
    requested_early = BEFORE if requests_recorded else completed
    requested_event = np.select(
        [requested != NONE, preexisting & is_pending, is_pending, preexisting & (completed != NONE)],
        [requested, BEFORE, gone_by, requested_early],
        default=end_event,
    )
    start_event = np.select([alloc != NONE, marks.first], [alloc, 0], default=np.append(0, end_event[:-1]))

    has_event = first_event != NONE
    asked = np.zeros(len(live), np.int64)
    asked[has_event] = size_bytes[first_event[has_event]]
    asked[~has_event] = end.requested_bytes[live[~has_event]]
    sizes = block_bytes(asked, divisions=divisions)
    sizes[live != NONE] = end.size_bytes[live[live != NONE]]
    addresses = np.zeros(len(live), np.uint64)
    addresses[has_event] = address[first_event[has_event]]
    addresses[~has_event] = end.address[live[~has_event]]

    order = np.argsort(start_event, kind="stable")
    columns = {
        "address": addresses,
        "size_bytes": sizes,
        "requested_bytes": asked,
        "alloc_event": alloc,
        "first_event": first_event,
        "end_row": live,
        "start_event": start_event,
        "requested_event": requested_event,
        "end_event": end_event,
        "preexisting": preexisting,
        "free_unreported": (completed == NONE) & (live == NONE) & (end_event != NOT_FREED),
    }
    return Lives(**{name: values[order] for name, values in columns.items()})


def _marks(kind: Int64s, address: NDArray[np.uint64], end: EndState) -> _Marks:
    rows = np.flatnonzero(np.isin(kind, (Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)))
    at = np.concatenate([address[rows], end.address])
    what = np.concatenate([kind[rows], np.where(end.pending, Kind.LIVE_PENDING, Kind.LIVE_ALLOCATED)])
    row = np.concatenate([rows, np.arange(len(end.address))])
    order = np.argsort(at, kind="stable")
    at, what, row = at[order], what[order], row[order]

    new_address = np.ones(len(at), np.bool_)
    new_address[1:] = at[1:] != at[:-1]
    before = np.append(Kind.IGNORED, what[:-1])
    restarts = (what == Kind.FREE_REQUESTED) | (what == Kind.LIVE_ALLOCATED)
    restarts &= before == Kind.FREE_REQUESTED  # the completion between them is missing
    starts = new_address | (what == Kind.ALLOC) | (before == Kind.FREE_COMPLETED) | restarts
    begins = np.flatnonzero(starts)
    first = new_address[begins]
    return _Marks(
        kind=what,
        row=row,
        life=np.cumsum(starts) - 1,
        begins=begins,
        first=first,
        last=np.append(first[1:], np.ones(min(len(first), 1), np.bool_)),
    )


def allocated_series(lives: Lives, num_events: int) -> Series:
    """Bytes in use by tensors: until the free is requested."""
    counted = lives.requested_event != BEFORE
    return _series(lives, lives.requested_event, num_events, counted=counted)


def active_series(lives: Lives, num_events: int) -> Series:
    """Allocated, plus freed blocks that a stream still holds: until the free is completed."""
    return _series(lives, lives.end_event, num_events, counted=np.ones(len(lives.address), np.bool_))


def _series(lives: Lives, until: Int64s, num_events: int, *, counted: Bools) -> Series:
    change = np.zeros(num_events, np.int64)
    born = counted & ~lives.preexisting
    dies = counted & (until < num_events)
    np.add.at(change, lives.start_event[born], lives.size_bytes[born])
    np.subtract.at(change, until[dies], lives.size_bytes[dies])
    start = int(lives.size_bytes[counted & lives.preexisting].sum())
    return Series(start=start, values=start + np.cumsum(change))


def reserved_series(kind: Int64s, size_bytes: Int64s, end: EndState) -> tuple[Series, int]:
    """Bytes in segments, and at how many events they would be negative (shown as 0) for want of events."""
    sign: Any = (kind == Kind.SEGMENT_GROWS).astype(np.int64) - (kind == Kind.SEGMENT_SHRINKS)
    path = np.append(0, np.cumsum(sign * size_bytes))
    start = end.reserved_bytes - path[-1] if end.known else -path.min()
    values = start + path
    num_negative = int((values < 0).sum())
    values = np.maximum(values, 0)
    return Series(start=int(values[0]), values=values[1:]), num_negative
