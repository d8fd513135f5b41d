"""Memory snapshots of the CUDA caching allocator as tables, one history per device.

`t_ns` is the snapshot's `time_us` * 1000 (unix time); row i of `events` and `samples` is event i. Sizes are
those of blocks, see [Note: Sizes of blocks]. A requested free ends a block for `allocated`, a completed one
for `active`; what lies between is "freed but held by a stream". The replay is in snapshot/replay.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.snapshot import tables as tables
from fsdp_profile.ingest.snapshot.columns import (
    EventColumns,
    Numbering,
    event_columns,
    int_column,
    not_a_snapshot,
    pull,
    segment_columns,
)
from fsdp_profile.ingest.snapshot.frames import Stacks
from fsdp_profile.ingest.snapshot.replay import (
    Int64s,
    Series,
    active_series,
    allocated_series,
    replay_blocks,
    reserved_series,
)
from fsdp_profile.ingest.snapshot.safe_pickle import load_plain, load_plain_isolated, paused_gc
from fsdp_profile.ingest.snapshot.warnings import warnings_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """The allocator's totals at one moment."""

    allocated_bytes: int
    """In use by tensors."""
    active_bytes: int
    """Allocated, plus freed blocks that a stream still holds."""
    reserved_bytes: int
    """In segments, used or not."""

    @property
    def pending_free_bytes(self) -> int:
        """Freed, but a stream still holds it."""
        return self.active_bytes - self.allocated_bytes

    @property
    def reserved_unused_bytes(self) -> int:
        """Cached: in segments, in no block."""
        return self.reserved_bytes - self.active_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfMemory:
    """One failed allocation."""

    t_ns: int
    event: int
    """Row of `events`."""
    asked_bytes: int
    device_free_bytes: int | None
    """What the device said was free; None when the snapshot does not record it."""
    stream: int
    totals: Totals
    """At that moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceHistory:
    """What one device's allocator did, as far as the snapshot records it."""

    device: int
    """Index of the device in the process that wrote the snapshot."""
    events: pa.Table
    """Every event, unknown ones included: t_ns int64, action string, address uint64, size_bytes int64 (as
    requested), stream int64, stack int32 or null (row of `stacks`)."""
    blocks: pa.Table
    """One row per life of a block, by start: address uint64; size_bytes, requested_bytes int64; start_ns,
    start_event; end_requested_ns, end_requested_event (-1: before the first event); end_ns, end_event, the
    last four NOT_FREED when live at the end; stream int64; pool_id string or null ("0,0"); preexisting bool:
    lived before the recording, which is where it starts; free_unreported bool: gone, but no completed free on
    record; operator string or null; stack int32 or null. Times are 0 where there are no events."""
    samples: pa.Table
    """After each event: t_ns, allocated_bytes, active_bytes, reserved_bytes, all int64."""
    segments: pa.Table
    """At the end: address uint64; total_bytes, allocated_bytes, pending_free_bytes int64; stream int64,
    segment_type string, pool_id string or null, is_expandable bool."""
    stacks: pa.Table
    """Distinct call stacks: operator string (innermost ATen operator, else Python function) and location
    string ("file:line" of the innermost Python code outside torch); '' when the stack does not show it."""
    annotations: pa.Table
    """External annotations such as `FSDP::all_gather (layers.0)`: t_ns int64, name string, stage string."""
    ooms: tuple[OutOfMemory, ...]
    start: Totals
    """Before the first event."""
    end: Totals
    """When the snapshot was taken: what its segments hold."""
    warnings: tuple[str, ...]
    """One line each: what is missing or was ignored, with counts."""


def read_snapshot(path: str | Path, *, limit_bytes: int | None = None) -> list[DeviceHistory]:
    """The histories in a file that `torch.cuda.memory._dump_snapshot` wrote, plain or gzipped.

    Nothing in the file is executed. For a file of unknown origin give `limit_bytes`: it is then loaded in a
    child process first, with that much memory.

    Raises:
        InputError: not readable, not an allocator snapshot, or nothing was allocated or recorded.
    """
    loaded = load_plain(path) if limit_bytes is None else load_plain_isolated(path, limit_bytes=limit_bytes)
    try:
        histories = history_from_snapshot(loaded)
    except InputError as e:
        raise InputError(f"{path}: {e}") from e
    if not histories:
        raise InputError(f"{path}: no device memory in it; take the snapshot while tensors are on the device")
    return histories


def history_from_snapshot(snapshot: object) -> list[DeviceHistory]:
    """One history per device that has events or segments, by index of the device; none is an empty list.

    Args:
        snapshot: what `torch.cuda.memory._snapshot()` returns, or the bare list of segments of
            `torch.cuda.memory_snapshot()`. Absent keys are "not recorded", unknown ones are ignored.

    Raises:
        InputError: not an allocator snapshot; the line says what does not fit.
    """
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict) or not ("segments" in snapshot or "device_traces" in snapshot):
        not_a_snapshot("it has no 'segments' and no 'device_traces'")
    segments, traces, annotations = (
        _list(snapshot, key) for key in ("segments", "device_traces", "external_annotations")
    )
    by_device: dict[int, list[Any]] = {i: [] for i, trace in enumerate(traces) if trace}
    devices = int_column(pull(segments, "device", 0), np.int64, "device").tolist()
    for device, entry in zip(devices, segments, strict=True):
        by_device.setdefault(device, []).append(entry)
    owners = pull(annotations, "device", None)
    divisions = _roundup_divisions(snapshot.get("allocator_settings"))
    with paused_gc():
        return [
            _device_history(
                device,
                traces[device] if 0 <= device < len(traces) else (),
                by_device[device] if "segments" in snapshot else None,
                [a for a, owner in zip(annotations, owners, strict=True) if owner in (None, device)],
                divisions=divisions,
            )
            for device in sorted(by_device)
        ]


def _device_history(
    device: int,
    trace: Sequence[Any],
    segments: Sequence[Any] | None,
    annotations: Sequence[Any],
    *,
    divisions: Int64s | None,
) -> DeviceHistory:
    stacks, pools = Stacks(), Numbering()
    events = event_columns(trace, stacks=stacks, pools=pools)
    held = segment_columns(segments or (), stacks=stacks, pools=pools, known=segments is not None)
    lives = replay_blocks(events.kind, events.address, events.size_bytes, held.blocks, divisions=divisions)
    num_events = len(events.kind)
    allocated, active = allocated_series(lives, num_events), active_series(lives, num_events)
    reserved, num_negative = reserved_series(events.kind, events.size_bytes, held.blocks)
    return DeviceHistory(
        device=device,
        events=tables.events_table(events),
        blocks=tables.blocks_table(lives, events, held, stacks=stacks, pools=pools),
        samples=tables.samples_table(events, allocated, active, reserved),
        segments=tables.segments_table(held, pools=pools),
        stacks=tables.stacks_table(stacks),
        annotations=tables.annotations_table(annotations),
        ooms=_ooms(events, allocated, active, reserved),
        start=Totals(allocated_bytes=allocated.start, active_bytes=active.start, reserved_bytes=reserved.start),
        end=Totals(allocated_bytes=allocated.end, active_bytes=active.end, reserved_bytes=reserved.end),
        warnings=warnings_of(events, held, lives, active, reserved, num_negative_reserved=num_negative),
    )


def _ooms(events: EventColumns, allocated: Series, active: Series, reserved: Series) -> tuple[OutOfMemory, ...]:
    return tuple(
        OutOfMemory(
            t_ns=int(events.t_ns[row]),
            event=row,
            asked_bytes=int(events.size_bytes[row]),
            device_free_bytes=free,
            stream=int(events.stream[row]),
            totals=Totals(
                allocated_bytes=int(allocated.values[row]),
                active_bytes=int(active.values[row]),
                reserved_bytes=int(reserved.values[row]),
            ),
        )
        for row, free in zip(events.oom_rows.tolist(), events.oom_device_free_bytes, strict=True)
    )


def _list(snapshot: dict[Any, Any], key: str) -> Sequence[Any]:
    found = snapshot.get(key, ())
    if not isinstance(found, (list, tuple)):
        not_a_snapshot(f"'{key}' is not a list")
    return found


def _roundup_divisions(settings: Any) -> Int64s | None:
    """`roundup_power2_divisions` per power of two from 1 MiB on; None when not recorded."""
    found = settings.get("roundup_power2_divisions") if isinstance(settings, dict) else None
    if not isinstance(found, dict) or not found:
        return None
    ordered: Int64s = int_column(list(found.values()), np.int64, "roundup_power2_divisions")
    return ordered
