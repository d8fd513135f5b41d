"""Columns of a replayed snapshot as Arrow tables; their columns are documented at the fields of DeviceHistory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.snapshot.columns import EventColumns, Numbering, SegmentColumns, pull, time_column
from fsdp_profile.ingest.snapshot.frames import Stacks, clean_text
from fsdp_profile.ingest.snapshot.replay import BEFORE, NONE, Bools, Int64s, Kind, Lives, Series


def events_table(events: EventColumns) -> pa.Table:
    """One row per event."""
    return pa.table(
        {
            "t_ns": events.t_ns,
            "action": _words(events.action, events.actions),
            "address": events.address,
            "size_bytes": events.size_bytes,
            "stream": events.stream,
            "stack": _or_null(events.stack),
        }
    )


def samples_table(events: EventColumns, allocated: Series, active: Series, reserved: Series) -> pa.Table:
    """One row per event: the totals after it."""
    return pa.table(
        {
            "t_ns": events.t_ns,
            "allocated_bytes": allocated.values,
            "active_bytes": active.values,
            "reserved_bytes": reserved.values,
        }
    )


def blocks_table(
    lives: Lives, events: EventColumns, held: SegmentColumns, *, stacks: Stacks, pools: Numbering
) -> pa.Table:
    """One row per life of a block."""
    with_event, with_end = lives.first_event != NONE, lives.end_row != NONE
    end_row = lives.end_row[with_end]
    stream = np.zeros(len(with_event), np.int64)
    stream[with_end] = held.stream[held.block_segment[end_row]]
    stream[with_event] = events.stream[lives.first_event[with_event]]
    stack = np.full(len(with_event), NONE, np.int32)
    stack[with_end] = held.block_stack[end_row]
    allocated = lives.alloc_event != NONE  # a free carries the stack of whoever freed
    of_alloc = events.stack[lives.alloc_event[allocated]]
    stack[allocated] = np.where(of_alloc != NONE, of_alloc, stack[allocated])
    operators = [operator for operator, _ in stacks.rows]
    told = np.array([bool(operator) for operator in operators] or [False], np.bool_)
    return pa.table(
        {
            "address": lives.address,
            "size_bytes": lives.size_bytes,
            "requested_bytes": lives.requested_bytes,
            "start_ns": _times_of(lives.start_event, events.t_ns),
            "start_event": lives.start_event,
            "end_requested_ns": _times_of(lives.requested_event, events.t_ns),
            "end_requested_event": lives.requested_event,
            "end_ns": _times_of(lives.end_event, events.t_ns),
            "end_event": lives.end_event,
            "stream": stream,
            "pool_id": _pool_words(_pools_of(lives, events, held), pools),
            "preexisting": lives.preexisting,
            "free_unreported": lives.free_unreported,
            "operator": _words(np.where((stack != NONE) & told[stack], stack, NONE), operators),
            "stack": _or_null(stack),
        }
    )


def segments_table(held: SegmentColumns, *, pools: Numbering) -> pa.Table:
    """One row per segment."""
    return pa.table(
        {
            "address": held.address,
            "total_bytes": held.total_bytes,
            "allocated_bytes": held.allocated_bytes,
            "pending_free_bytes": held.pending_free_bytes,
            "stream": held.stream,
            "segment_type": pa.array(held.segment_type, pa.string()),
            "pool_id": _pool_words(held.pool, pools),
            "is_expandable": pa.array(held.is_expandable, pa.bool_()),
        }
    )


def stacks_table(stacks: Stacks) -> pa.Table:
    """One row per distinct stack, in the order of its number."""
    return pa.table(
        {
            "operator": pa.array([operator for operator, _ in stacks.rows], pa.string()),
            "location": pa.array([location for _, location in stacks.rows], pa.string()),
        }
    )


def annotations_table(annotations: Sequence[Any]) -> pa.Table:
    """One row per annotation.

    Raises:
        InputError: an annotation is not a dict, or has no time.
    """
    t_ns, _ = time_column(pull(annotations, "time_us", None))
    columns = {key: [clean_text(text) for text in pull(annotations, key, "")] for key in ("name", "stage")}
    return pa.table({"t_ns": t_ns, **{key: pa.array(texts, pa.string()) for key, texts in columns.items()}})


def _times_of(event: Int64s, t_ns: Int64s) -> Int64s:
    """Time of each event; NOT_FREED stays, BEFORE is the first event."""
    if not len(t_ns):
        return np.where(event == NOT_FREED, NOT_FREED, 0)
    inside = np.clip(event, 0, len(t_ns) - 1)
    return np.where(event == NOT_FREED, NOT_FREED, t_ns[inside])


def _pools_of(lives: Lives, events: EventColumns, held: SegmentColumns) -> Any:
    """Pool of each life: as its event says (torch 2.12 on), else of the segment that holds its address."""
    pool = np.full(len(lives.address), NONE, np.int32)
    if len(held.address):
        order = np.argsort(held.address, kind="stable")
        row = order[np.maximum(np.searchsorted(held.address[order], lives.address, side="right") - 1, 0)]
        inside = (lives.address >= held.address[row]) & (
            lives.address - held.address[row] < held.total_bytes[row].astype(np.uint64)
        )
        pool = np.where(inside & _segment_was_there(lives, events, held, row), held.pool[row], pool)
    with_event = lives.first_event != NONE
    of_event = events.pool[lives.first_event[with_event]]
    pool[with_event] = np.where(of_event != NONE, of_event, pool[with_event])
    return pool


def _segment_was_there(lives: Lives, events: EventColumns, held: SegmentColumns, row: Int64s) -> Bools:
    """Whether the segment is the one of that time, not a later one at the same address."""
    made = np.full(len(held.address), BEFORE, np.int64)
    grows = np.flatnonzero(events.kind == Kind.SEGMENT_GROWS)
    order = np.argsort(held.address, kind="stable")
    at = np.minimum(np.searchsorted(held.address[order], events.address[grows]), len(order) - 1)
    same = held.address[order[at]] == events.address[grows]
    np.maximum.at(made, order[at[same]], grows[same])
    there: Bools = (made[row] == BEFORE) | (lives.alloc_event > made[row]) | (lives.end_row != NONE)
    return there


def _words(numbers: Any, texts: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(_or_null(numbers), pa.array(texts, pa.string()))


def _pool_words(numbers: Any, pools: Numbering) -> pa.DictionaryArray:
    return _words(numbers, [clean_text(",".join(map(str, pool))) for pool in pools.numbers])


def _or_null(numbers: Any) -> pa.Array:
    return pa.array(numbers, pa.int32(), mask=numbers == NONE)
