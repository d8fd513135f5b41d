"""The collectives of one rank or of all ranks, one row per call, for charts and tables.

Exposed time comes from exposure.py; wait, transfer and bandwidth come from cross_rank.py. The calls of one rank keep
its own clock; those of all ranks use the clock of the lowest rank where the clocks could be aligned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.collectives.exposure import compute_spans, exposed_ns
from fsdp_profile.analysis.collectives.matching import numbered
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.intervals import covered_ns, length_ns, union
from fsdp_profile.analysis.spans.recorded import PhaseSpan, phase_spans, unit_names
from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.tables import numbers, strings

Ints = np.ndarray[Any, np.dtype[np.int64]]

BY_KIND = ("kind",)
BY_GROUP = ("group", "group_description", "group_size")
BY_UNIT = ("unit",)
BY_RANK = ("rank",)

_TAKEN = ("phase", "size_bytes", "group", "group_description", "group_size", "dtype", "sequence")
_MATCHED = ("transfer_ns", "algbw_bytes_per_s", "busbw_bytes_per_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTotal:
    """All calls of one kind, group, unit or rank; times are sums over calls."""

    key: tuple[Any, ...]
    """Their common values in the columns by which they are grouped."""
    count: int
    size_bytes: int | None
    """Sum of the whole arrays' bytes; None when one of them was not recorded."""
    total_ns: int
    exposed_ns: int | None
    """The part of the total that was not hidden behind compute; None where no compute was recorded."""
    algbw_bytes_per_s: float | None
    """Median over the collectives matched between the ranks; None where none was, or no size is known."""
    busbw_bytes_per_s: float | None

    @property
    def overlapped_ns(self) -> int | None:
        """The part of the total that was hidden behind compute."""
        return None if self.exposed_ns is None else self.total_ns - self.exposed_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTotal:
    """The collectives of one rank in one step. Times are unions: nothing counts twice."""

    step: int
    total_ns: int
    exposed_ns: int | None
    """None where no compute was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCalls:
    """The collectives of one step."""

    step: int
    start_ns: int
    """When the first of the ranks began the step."""
    end_ns: int
    """When the last of them ended it."""
    calls: pa.Table
    """Rows of `collective_calls`."""
    exposed: pa.Table | None
    """The exposed time windows of the calls: call (row of `calls`), start_ns, end_ns int64; None where no compute was
    recorded."""
    phases: tuple[PhaseSpan, ...]
    """Of one rank; empty for all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankWait:
    """The matched collectives of one rank, in sums over them."""

    rank: int
    count: int
    wait_ns: int
    """How long it waited for the last rank, without the waits caused by pauses of the capture."""
    transfer_ns: int
    """From the last rank's start to the end, of the collectives it took part in."""


def collective_calls(run: Run, matches: CrossRank, *, rank: int | None) -> pa.Table:
    """Every call in the training steps of one rank, or of all (None), by start.

    Columns: rank, start_ns, end_ns, issue_ns, step int64, kind, phase, unit (its name; null when none), group,
    group_description, dtype string, size_bytes, group_size, sequence int64 or null, exposed_ns int64 or null, and
    where the call was matched between the ranks, else null: collective (its number), wait_ns, transfer_ns int64,
    algbw_bytes_per_s, busbw_bytes_per_s float64, paused_ns int64 (the part of the wait that a pause
    of the capture caused).

    Raises:
        InputError: no such rank, or its tables are damaged.
    """
    if rank is not None:
        return _calls_of(run, matches, rank).sort_by("start_ns")
    parts = []
    for number in run.ranks:
        found = _calls_of(run, matches, number)
        for name in ("start_ns", "end_ns", "issue_ns"):
            moved = pa.array(numbers(found, name) - _ahead_ns(matches, number), pa.int64())
            found = found.set_column(found.column_names.index(name), name, moved)
        parts.append(found)
    if not parts:
        raise InputError(f"{run.path}: no rank recorded anything here; record the run again")
    return pa.concat_tables(parts).combine_chunks().sort_by("start_ns")


def step_calls(run: Run, matches: CrossRank, calls: pa.Table, *, rank: int | None, step: int) -> StepCalls:
    """One step of `collective_calls` of the same rank, with the time windows that were exposed.

    Raises:
        InputError: no such step.
    """
    ranks = run.ranks if rank is None else (rank,)
    mine = calls.filter(pc.equal(calls.column("step"), step))
    start, end, windows = [], [], []
    for number in ranks:
        ahead = _ahead_ns(matches, number) if rank is None else 0
        steps = run.table("steps", rank=number)
        row = np.flatnonzero(numbers(steps, "step") == step)
        if len(row):
            start.append(int(numbers(steps, "start_ns")[row[0]]) - ahead)
            end.append(int(numbers(steps, "end_ns")[row[0]]) - ahead)
        compute = compute_spans(run, rank=number)
        if compute is not None:
            own = np.flatnonzero(numbers(mine, "rank") == number)
            spans = (compute[0] - ahead, compute[1] - ahead)
            windows.append(_exposed_windows(own, numbers(mine, "start_ns")[own], numbers(mine, "end_ns")[own], spans))
    if not start:
        raise InputError(f"{run.path}: no step {step} was recorded; choose another step")
    exposed = [np.concatenate(columns) for columns in zip(*windows, strict=True)] if windows else None
    return StepCalls(
        step=step,
        start_ns=min([*start, *numbers(mine, "start_ns").tolist()[:1]]),
        end_ns=max([*end, int(numbers(mine, "end_ns").max(initial=0))]),
        calls=mine,
        exposed=None if exposed is None else pa.table(dict(zip(("call", "start_ns", "end_ns"), exposed, strict=True))),
        phases=() if rank is None else phase_spans(run, rank=rank, step=step),
    )


def call_totals(calls: pa.Table, by: Sequence[str]) -> list[CallTotal]:
    """Sums over the calls that agree in some columns (BY_KIND and so on), the longest in sum first."""
    if not calls.num_rows:
        return []
    codes = [_coded(calls.column(name)) for name in by]
    number = numbered(*(code for code, _ in codes))
    start, end = numbers(calls, "start_ns"), numbers(calls, "end_ns")
    size, exposed = calls.column("size_bytes"), calls.column("exposed_ns")
    found = []
    for which in range(int(number.max()) + 1):
        rows = np.flatnonzero(number == which)
        taken = pa.array(rows)
        found.append(
            CallTotal(
                key=tuple(words[code[rows[0]]] for code, words in codes),
                count=len(rows),
                size_bytes=_sum(size.take(taken)),
                total_ns=int((end[rows] - start[rows]).sum()),
                exposed_ns=_sum(exposed.take(taken)),
                algbw_bytes_per_s=_median(calls, "algbw_bytes_per_s", rows),
                busbw_bytes_per_s=_median(calls, "busbw_bytes_per_s", rows),
            )
        )
    return sorted(found, key=lambda total: -total.total_ns)


def step_totals(run: Run, *, rank: int) -> list[StepTotal]:
    """The training steps of a rank that have collectives, in order."""
    table = run.table("collectives", rank=rank)
    step, start, end = (numbers(table, name) for name in ("step", "start_ns", "end_ns"))
    compute = compute_spans(run, rank=rank)
    found = []
    for number in np.unique(step[step >= 0]).tolist():
        spans = union(start[step == number], end[step == number])
        total = length_ns(*spans)
        exposed = None if compute is None else total - int(covered_ns(compute, *spans).sum())
        found.append(StepTotal(step=number, total_ns=total, exposed_ns=exposed))
    return found


def rank_waits(matches: CrossRank) -> list[RankWait]:
    """Wait and transfer of every rank with matched collectives."""
    number = numbers(matches.collectives, "collective")
    row_of = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    row_of[number] = np.arange(len(number))
    rank = numbers(matches.calls, "rank")
    wait = numbers(matches.calls, "wait_ns") - numbers(matches.calls, "paused_ns")
    row = row_of[numbers(matches.calls, "collective")]
    transfer = numbers(matches.collectives, "transfer_ns")[row]
    return [
        RankWait(
            rank=which,
            count=int((rank == which).sum()),
            wait_ns=int(wait[rank == which].sum()),
            transfer_ns=int(transfer[rank == which].sum()),
        )
        for which in np.unique(rank).tolist()
    ]


def _calls_of(run: Run, matches: CrossRank, rank: int) -> pa.Table:
    table = run.table("collectives", rank=rank)
    trained = pa.array(numbers(table, "step") >= 0)
    exposed = exposed_ns(run, rank=rank)
    none = pa.nulls(table.num_rows, pa.int64())
    table = table.append_column("exposed_ns", none if exposed is None else pa.array(exposed)).filter(trained)
    names = unit_names(run, rank=rank)
    units = pa.array([names.get(unit) for unit in numbers(table, "unit").tolist()], pa.string())
    columns: dict[str, Any] = {"rank": np.full(table.num_rows, rank, np.int64), "kind": _text(table, "kind")}
    for name in ("start_ns", "end_ns", "issue_ns", "step", "exposed_ns"):
        columns[name] = table.column(name).cast(pa.int64())
    columns["unit"] = units
    for name in _TAKEN:
        is_text = pa.types.is_dictionary(table.column(name).type)
        columns[name] = _text(table, name) if is_text else table.column(name).cast(pa.int64())
    return pa.table({**columns, **_matched(table, matches, rank)})


def _matched(table: pa.Table, matches: CrossRank, rank: int) -> dict[str, Any]:
    """The cross-rank columns of the calls of a rank; null where times and kind do not identify a matched call."""
    calls = matches.calls.filter(pc.equal(matches.calls.column("rank"), rank))
    row_of = np.full(int(numbers(matches.collectives, "collective").max(initial=-1)) + 1, -1, np.int64)
    row_of[numbers(matches.collectives, "collective")] = np.arange(matches.num_matched)
    row = row_of[numbers(calls, "collective")]
    kinds = np.concatenate([strings(table, "kind"), _words(matches.collectives, "kind")[row]]).astype(str)
    ahead, num = _ahead_ns(matches, rank), table.num_rows
    times = [np.concatenate([numbers(table, n), numbers(calls, n) + ahead]) for n in ("start_ns", "end_ns")]
    key = numbered(*times, np.unique(kinds, return_inverse=True)[1].astype(np.int64))
    num_keys = int(key.max(initial=-1)) + 1
    is_alone = (np.bincount(key[:num], minlength=num_keys) == 1) & (np.bincount(key[num:], minlength=num_keys) == 1)
    match_of = np.zeros(num_keys, np.int64)
    match_of[key[num:]] = np.arange(calls.num_rows)
    is_known = is_alone[key[:num]]
    which = pa.array(match_of[key[:num]], mask=~is_known)
    of_collective = pa.array(row, pa.int64()).take(which)
    return {
        "collective": calls.column("collective").take(which),
        "wait_ns": calls.column("wait_ns").take(which),
        "paused_ns": calls.column("paused_ns").take(which),
        **{name: matches.collectives.column(name).take(of_collective) for name in _MATCHED},
    }


def _exposed_windows(row: Ints, start: Ints, end: Ints, compute: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """The parts of some spans that disjoint sorted ones leave open, as (row, start, end)."""
    begins, ends = compute
    far = np.iinfo(np.int64)
    gap_start, gap_end = np.append(far.min, ends), np.append(begins, far.max)
    first = np.searchsorted(begins, start, side="right")  # the first gap that ends after the start
    count = np.maximum(np.searchsorted(ends, end, side="left") - first + 1, 0)
    owner = np.repeat(np.arange(len(row)), count)
    gap = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]
    begin, stop = np.maximum(start[owner], gap_start[gap]), np.minimum(end[owner], gap_end[gap])
    is_open = stop > begin
    return row[owner[is_open]], begin[is_open], stop[is_open]


def _ahead_ns(matches: CrossRank, rank: int) -> int:
    """How far the clock of a rank is ahead of the lowest rank's clock; 0 where the clocks were not aligned."""
    return (matches.clock.offset_ns or {}).get(rank, 0)


def _text(table: pa.Table, name: str) -> pa.Array:
    return pa.array(strings(table, name).tolist(), pa.string())


def _words(table: pa.Table, name: str) -> "np.ndarray[Any, np.dtype[np.object_]]":
    return np.array([*table.column(name).to_pylist(), ""], object)[:-1]


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    encoded = column.combine_chunks().dictionary_encode("encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _sum(column: pa.ChunkedArray) -> int | None:
    return None if column.null_count else int(pc.sum(column).as_py())


def _median(calls: pa.Table, name: str, rows: Ints) -> float | None:
    """The median over the collectives of some calls; each collective counts once."""
    collective = calls.column("collective").fill_null(-1).to_numpy()[rows]
    _, first = np.unique(collective, return_index=True)
    value = calls.column(name).to_numpy(zero_copy_only=False)[rows][first].astype(np.float64)
    known = value[~np.isnan(value)]
    return float(np.median(known)) if len(known) else None
