"""The collectives that gloo carried, and what they were called by the strategy.

A transport runs on gloo's own threads and has no link to the call behind it. Calls and transports keep their
order, so a transport takes the first `c10d::` call before it that it can carry, with as many elements. Gloo
has no reduce-scatter: it goes as `gloo:all_reduce`. Where no operators were recorded, the first all-reduce
inside an `FSDP::post_backward_reduce` is the unit's reduce-scatter.
"""

from itertools import islice
from typing import Final

from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.ingest.kineto.calls import Call, Found, Rows, inputs_of
from fsdp_profile.ingest.kineto.names import (
    C10D_PREFIX,
    GLOO_PREFIX,
    HOST_CATEGORIES,
    REDUCE_ANNOTATION,
    collective_kind,
)

MAX_WAITING: Final = 64
"""Calls without a transport that are looked at."""

_CARRIED_BY: Final = {
    CollectiveKind.REDUCE_SCATTER: {CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE},
    CollectiveKind.BARRIER: {CollectiveKind.BARRIER, CollectiveKind.ALL_REDUCE},
}
"""Transports of a kind of call, where it is not the same kind."""

_OUTPUT_FIRST: Final = ("gather", "scatter", "alltoall")
"""Calls whose first argument is the output, the second the input."""


def gloo_collectives(rows: Rows) -> list[Found]:
    """Every gloo transport, by start."""
    is_host = HOST_CATEGORIES.__contains__
    transports = rows.where(name=lambda n: n.startswith(GLOO_PREFIX), category=is_host).tolist()
    if not transports:
        return []
    calls = rows.where(name=lambda n: n.startswith(C10D_PREFIX), category=is_host).tolist()
    if not calls:
        return _by_annotation(rows, transports)
    waiting = {row: _call(rows, row) for row in calls}
    found: list[Found] = []
    for row in transports:
        carried = _transport(rows, row)
        match = next((c for c in islice(waiting, MAX_WAITING) if _fits(rows, c, waiting[c], row, carried)), None)
        found.append((row, carried if match is None else _merge(waiting.pop(match), carried), match))
    return found


def _fits(rows: Rows, call_row: int, call: Call, row: int, carried: Call) -> bool:
    if rows.start_ns[call_row] > rows.start_ns[row]:
        return False
    if carried.kind not in _CARRIED_BY.get(call.kind, {call.kind}):
        return False
    numels = {call.in_numel, carried.in_numel} - {None}
    return len(numels) < 2


def _merge(call: Call, carried: Call) -> Call:
    part, whole = call.in_numel, call.out_numel
    if call.kind is CollectiveKind.REDUCE_SCATTER:
        part, whole = whole, part
    is_spread = call.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    return Call(
        kind=call.kind,
        dtype=carried.dtype or call.dtype,
        in_numel=call.in_numel if call.in_numel is not None else carried.in_numel,
        out_numel=call.out_numel,
        group_size=whole // part if is_spread and part and whole and whole % part == 0 else None,
    )


def _transport(rows: Rows, row: int) -> Call:
    numels, types = inputs_of(rows.shapes.get(row))
    kind = collective_kind(rows.name_of(row).removeprefix(GLOO_PREFIX))
    return Call(
        kind=kind or CollectiveKind.OTHER,
        dtype=types[0] if types and types[0] else None,
        in_numel=numels[0] if numels else None,
    )


def _call(rows: Rows, row: int) -> Call:
    word = rows.name_of(row).removeprefix(C10D_PREFIX)
    numels, types = inputs_of(rows.shapes.get(row))
    is_output_first = any(part in word for part in _OUTPUT_FIRST)
    first, second = [*numels, None, None][:2]
    in_numel, out_numel = (second, first) if is_output_first else (first, first)
    dtype = [*types, "", ""][1 if is_output_first else 0]
    return Call(
        kind=collective_kind(word) or CollectiveKind.OTHER,
        dtype=None if dtype in ("", "TensorList", "GenericList") else dtype,
        in_numel=in_numel,
        out_numel=out_numel,
    )


def _by_annotation(rows: Rows, transports: list[int]) -> list[Found]:
    reductions = rows.where(
        name=lambda n: n.startswith(REDUCE_ANNOTATION), category=HOST_CATEGORIES.__contains__
    ).tolist()
    found: list[Found] = []
    for row in transports:
        carried = _transport(rows, row)
        if carried.kind is CollectiveKind.ALL_REDUCE:
            start = rows.start_ns[row]
            around = next((r for r in reductions if rows.start_ns[r] <= start <= rows.end_ns[r]), None)
            if around is not None:
                reductions.remove(around)
                carried = Call(kind=CollectiveKind.REDUCE_SCATTER, dtype=carried.dtype, in_numel=carried.in_numel)
        found.append((row, carried, None))
    return found
