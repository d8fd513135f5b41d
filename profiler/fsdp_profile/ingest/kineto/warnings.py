"""What was damaged, assumed or cannot be shown in a trace, in one line each, with counts."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.ingest.kineto.columns import EXACT_DECIMALS, HOST_MEMORY, EventColumns
from fsdp_profile.ingest.kineto.events import to_int
from fsdp_profile.ingest.kineto.metadata import Rank
from fsdp_profile.ingest.kineto.names import GLOO_PREFIX
from fsdp_profile.ingest.kineto.stream import EventStream

MAX_NAMES: Final = 5
MAX_NAME_CHARS: Final = 40


def damage_warnings(stream: EventStream, columns: EventColumns) -> list[str]:
    """Warnings about what was dropped, repaired or clamped."""
    lines = []
    whole = stream.num_events
    after = "" if stream.first_drop is None else f", the first after event {stream.first_drop}"
    counts = f"events kept: {whole}, dropped: {stream.num_dropped}{after}"
    if stream.is_cut:
        reason = stream.source.damage or "the file ends early"
        lines.append(f"truncated: {reason}; {counts}; the last step is incomplete")
    else:
        if stream.source.damage:
            lines.append(f"damaged file: {stream.source.damage}")
        if stream.num_dropped:
            lines.append(f"damaged events: {counts}")
    if stream.is_array:
        lines.append(
            "array format: no rank, base time or process groups in the file; "
            "times count from an unknown moment, and any rank shown for it is assumed"
        )
    counted = (
        (stream.num_bad_utf8, "events with invalid UTF-8, bytes replaced"),
        (stream.num_not_numbers, "values that are no numbers (NaN, inf), taken as missing"),
        (columns.num_without_time, "events without a usable time, dropped"),
        (columns.num_open, "unfinished events, shown as open"),
        (columns.num_negative, "negative durations, taken as 0"),
    )
    lines += [f"{what}: {number}" for number, what in counted if number]
    if columns.other_phases:
        lines.append(f"events of phases that are not shown: {_counted(columns.other_phases)}")
    return lines


def time_warnings(stream: EventStream, columns: EventColumns, *, base_ns: int | None, is_absolute: bool) -> list[str]:
    """Warnings about the precision and the origin of times."""
    lines = []
    if not columns.has_fractions:
        lines.append("us precision only: times are whole microseconds")
    elif 0 < columns.absolute_decimals < EXACT_DECIMALS:
        lines.append("0.25 us precision only: absolute times were written from float64")
    if is_absolute and base_ns:
        lines.append("times are absolute: the base time is not added")
    elif not is_absolute and base_ns is None and not stream.is_array:
        lines.append("no base time: times count from an unknown moment; ranks cannot be put on one axis")
    return lines


def rank_warnings(stream: EventStream, found: Rank) -> list[str]:
    """Warnings about a rank that is assumed or contradicted."""
    lines = []
    if found.source == "none" and not stream.is_array:
        lines.append("no rank in the file or its name; any rank shown for it is assumed")
    elif found.source in ("given", "file name"):
        how = "as given" if found.source == "given" else "from the file name"
        lines.append(f"rank assumed: {found.rank}, {how}; its content has no rank")
    if found.other is not None:
        rank, source = found.other
        lines.append(f"rank {found.rank} by {found.source}; {source} says {rank}, which is not used")
    return lines


def content_warnings(events: pa.Table, collectives: pa.Table, columns: EventColumns) -> list[str]:
    """Warnings about what the events do not record."""
    lines = []
    if events.num_rows and pc.unique(events["category"]).to_pylist() == [""]:
        lines.append("no categories: kernels, collectives and steps cannot be distinguished from other events")
    if columns.memory_devices and {to_int(device) for device in columns.memory_devices} == {HOST_MEMORY}:
        lines.append(f"memory events: {columns.memory_devices.total()}, of host memory, not VRAM")
    kinds, transports = collectives["kind"].to_pylist(), collectives["transport"].to_pylist()
    pairs = list(zip(kinds, transports, strict=True))
    if unknown := Counter(transport for kind, transport in pairs if kind == CollectiveKind.OTHER):
        lines.append(f"collectives of unknown kind: {_counted(unknown)}")
    carried = Counter(
        transport
        for kind, transport in pairs
        if kind == CollectiveKind.REDUCE_SCATTER and transport == f"{GLOO_PREFIX}all_reduce"
    )
    lines += [f"reduce-scatters carried by {transport}: {n}" for transport, n in carried.items()]
    return lines


def _counted(counts: Mapping[str, int]) -> str:
    """Their sum, and the commonest first; the names come from the file and are kept to one line."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    names = ", ".join(f"{name[:MAX_NAME_CHARS]!a} {count}" for name, count in ordered[:MAX_NAMES])
    more = f", {len(ordered) - MAX_NAMES} more" if len(ordered) > MAX_NAMES else ""
    return f"{sum(counts.values())} ({names}{more})"
