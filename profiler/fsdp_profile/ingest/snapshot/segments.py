"""Lives of the allocator's segments, of freed blocks that a stream still holds, and failed allocations.

[Note: Segments backward] The segments as they were at the end are the anchor, and events lead back from it: before a
`segment_free` the piece was there, before a `segment_alloc` it was not. An unmap of an expandable segment may take
part of several maps, so pieces are split where they must be. A piece still open at the beginning was there before.

Event 0 is the state before the first event, as in memory_samples.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.snapshot.reader import DeviceHistory
from fsdp_profile.ingest.tables import make_table

_GROWS: Final = ("segment_alloc", "segment_map")
_SHRINKS: Final = ("segment_free", "segment_unmap")
_EXPANDABLE: Final = ("segment_map", "segment_unmap")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Reserved addresses, from one event to another."""

    begin: int
    end: int
    stream: int
    is_expandable: bool
    pool: str = ""
    start_event: int = 0
    end_event: int = NOT_FREED


def pool_tables(history: DeviceHistory) -> dict[str, pa.Table]:
    """Tables `segments`, `pending_frees` and `ooms` of one device's history."""
    t_ns = history.events.column("t_ns").to_numpy()
    times = np.concatenate([t_ns[:1] if len(t_ns) else np.zeros(1, np.int64), t_ns])
    return {
        "segments": make_table("segments", _segment_columns(_pieces(history), times)),
        "pending_frees": make_table("pending_frees", _pending_columns(history)),
        "ooms": make_table("ooms", _oom_columns(history)),
    }


def _pieces(history: DeviceHistory) -> list[_Piece]:
    actions = history.events.column("action").to_pylist()
    changes = [i for i, action in enumerate(actions) if action in _GROWS or action in _SHRINKS]
    picked = history.events.take(pa.array(changes, pa.int64())).select(["address", "size_bytes", "stream"]).to_pylist()
    held = [
        _Piece(
            begin=int(row["address"]),
            end=int(row["address"]) + row["total_bytes"],
            stream=row["stream"],
            is_expandable=bool(row["is_expandable"]),
            pool=row["pool_id"] or "",
        )
        for row in history.segments.to_pylist()
    ]
    gone_by = len(actions) if held else NOT_FREED
    closed: list[_Piece] = []
    for event, row in zip(reversed(changes), reversed(picked), strict=True):
        piece = _Piece(
            begin=int(row["address"]),
            end=int(row["address"]) + row["size_bytes"],
            stream=row["stream"],
            is_expandable=actions[event] in _EXPANDABLE,
            end_event=event + 1,
        )
        if actions[event] in _SHRINKS:
            held.append(piece)
            continue
        inside, held = _cut(held, piece)
        # What was made here and is neither there at the end nor seen to go: the events that took it are missing.
        inside += [replace(hole, end_event=gone_by) for hole in _holes(inside, piece)]
        closed += [replace(part, start_event=event + 1) for part in inside]
    return _with_pools(sorted([*closed, *held], key=lambda p: (p.start_event, p.begin)))


def _with_pools(pieces: list[_Piece]) -> list[_Piece]:
    """Give pieces whose pool is not recorded the pool of the others of their stream, where there is only one."""
    pools: dict[int, set[str]] = {}
    for piece in pieces:
        if piece.pool:
            pools.setdefault(piece.stream, set()).add(piece.pool)
    only = {stream: next(iter(found)) for stream, found in pools.items() if len(found) == 1}
    return [piece if piece.pool else replace(piece, pool=only.get(piece.stream, "")) for piece in pieces]


def _cut(held: list[_Piece], by: _Piece) -> tuple[list[_Piece], list[_Piece]]:
    """The parts of some pieces inside another one's addresses, and what is left of them outside."""
    inside, outside = [], []
    for piece in held:
        if piece.end <= by.begin or piece.begin >= by.end:
            outside.append(piece)
            continue
        inside.append(replace(piece, begin=max(piece.begin, by.begin), end=min(piece.end, by.end)))
        if piece.begin < by.begin:
            outside.append(replace(piece, end=by.begin))
        if piece.end > by.end:
            outside.append(replace(piece, begin=by.end))
    return inside, outside


def _holes(inside: Iterable[_Piece], whole: _Piece) -> list[_Piece]:
    """What of a piece no other one covers."""
    at, found = whole.begin, []
    for piece in sorted(inside, key=lambda p: p.begin):
        if piece.begin > at:
            found.append(replace(whole, begin=at, end=piece.begin))
        at = max(at, piece.end)
    if at < whole.end:
        found.append(replace(whole, begin=at))
    return found


def _segment_columns(pieces: list[_Piece], times: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "address": np.array([p.begin for p in pieces], np.uint64),
        "size_bytes": [p.end - p.begin for p in pieces],
        "start_ns": [int(times[p.start_event]) for p in pieces],
        "end_ns": [NOT_FREED if p.end_event == NOT_FREED else int(times[p.end_event]) for p in pieces],
        "start_event": [p.start_event for p in pieces],
        "end_event": [p.end_event for p in pieces],
        "stream": [p.stream for p in pieces],
        "pool": [p.pool for p in pieces],
        "is_expandable": [p.is_expandable for p in pieces],
    }


def _pending_columns(history: DeviceHistory) -> dict[str, Any]:
    """Blocks between the request of their free and its completion; one requested before the recording begins at 0."""
    blocks = history.blocks
    requested, done = (blocks.column(name).to_numpy() for name in ("end_requested_event", "end_event"))
    is_held = (requested != NOT_FREED) & (done > requested)
    rows = blocks.filter(pa.array(is_held))
    return {
        "address": rows.column("address"),
        "size_bytes": rows.column("size_bytes"),
        "start_ns": rows.column("end_requested_ns"),
        "end_ns": rows.column("end_ns"),
        "start_event": requested[is_held] + 1,
        "end_event": np.where(done[is_held] == NOT_FREED, NOT_FREED, done[is_held] + 1),
        "stream": rows.column("stream"),
        "pool": [pool or "" for pool in rows.column("pool_id").to_pylist()],
    }


def _oom_columns(history: DeviceHistory) -> dict[str, Any]:
    return {
        "t_ns": [oom.t_ns for oom in history.ooms],
        "event": [oom.event + 1 for oom in history.ooms],
        "asked_bytes": [oom.asked_bytes for oom in history.ooms],
        "device_free_bytes": [oom.device_free_bytes for oom in history.ooms],
        "stream": [oom.stream for oom in history.ooms],
    }
