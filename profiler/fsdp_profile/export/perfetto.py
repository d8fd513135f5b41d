"""A run as a Chrome trace: for ui.perfetto.dev and chrome://tracing.

One process per rank, with threads for steps, phases, what units do, when they are gathered, and collectives; counters
for the bytes of each category, stacked by the reader, and of the allocator. All ranks are on the clock of the lowest
one where their collectives allow it. Times are microseconds from the first event; `otherData` has its unix time.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.memory.downsampling import kept_rows
from fsdp_profile.analysis.memory.ledger import timeline_at
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import unit_spans
from fsdp_profile.core.humanize import unit_text
from fsdp_profile.core.schema import NO_UNIT, SpanKind
from fsdp_profile.ingest.tables import numbers, strings

MAX_COUNTER_ROWS: Final = 200_000
"""Instants of a rank's ledger; beyond it rows at the least and greatest total of each bin stand for all."""
_STARTS: Final = (
    ("steps", "start_ns"), ("phases", "start_ns"), ("unit_spans", "start_ns"), ("memory_samples", "t_ns"),
    ("collectives", "start_ns"),
)  # fmt: skip
_STEPS, _PHASES, _UNITS, _GATHERED, _COLLECTIVES = 1, 2, 3, 1_000, 100_000
"""Thread numbers; gathered units and collectives have lanes of their own from there on."""

Event = dict[str, Any]


def trace_bytes(run: Run) -> bytes:
    """The trace as JSON; the same bytes for the same run.

    Raises:
        InputError: a table is damaged.
    """
    clock = cross_rank(run).clock
    offsets = clock.offset_ns or {}
    zero = min(
        (start for rank in run.ranks if (start := _first_ns(run, rank, offsets.get(rank, 0))) is not None), default=0
    )
    events: list[Event] = []
    for rank in run.ranks:
        events += _of_rank(run, rank, zero + offsets.get(rank, 0))
    other = {
        "run": run.name,
        "strategy": str(run.manifest.strategy),
        "world_size": str(run.manifest.world_size),
        "start_unix_ns": str(zero),
        "clock": "one clock for all ranks" if clock.offset_ns is not None else f"each rank's own: {clock.reason}",
    }
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _first_ns(run: Run, rank: int, offset: int) -> int | None:
    starts = [
        int(numbers(table, column).min()) - offset
        for name, column in _STARTS
        if (table := run.table(name, rank=rank)).num_rows
    ]
    return min(starts, default=None)


def _of_rank(run: Run, rank: int, zero: int) -> Iterator[Event]:
    record = next((r for r in run.manifest.ranks if r.rank == rank), None)
    on = f" on {record.host}" if record is not None and record.host else ""
    yield _meta("process_name", rank, 0, {"name": f"rank {rank}{on}"})
    yield _meta("process_sort_index", rank, 0, {"sort_index": rank})
    steps, phases = run.table("steps", rank=rank), run.table("phases", rank=rank)
    yield from _thread(rank, _STEPS, "steps")
    yield from _slices(rank, _STEPS, steps, [f"step {s}" if s >= 0 else "set-up" for s in numbers(steps, "step")], zero)
    yield from _thread(rank, _PHASES, "phases")
    yield from _slices(rank, _PHASES, phases, list(strings(phases, "phase")), zero)
    yield from _units(run, rank, zero)
    yield from _collectives(run, rank, zero)
    yield from _counters(run, rank, zero)


def _units(run: Run, rank: int, zero: int) -> Iterator[Event]:
    """What the host does for units in one thread; a lane for each unit's time unsharded."""
    spans = unit_spans(run, rank=rank)
    kind = strings(spans, "kind")
    work = spans.filter(pa.array(kind != SpanKind.UNSHARDED.value)).sort_by("start_ns")
    titles = [
        f"{k} {unit_text(n)}" for k, n in zip(strings(work, "kind"), work.column("name").to_pylist(), strict=True)
    ]
    yield from _thread(rank, _UNITS, "units, host")
    for lane, row in _lanes(work, nested=True):
        if lane:
            yield from _thread(rank, _UNITS + lane, f"units, host ({lane + 1})")
        yield from _slices(
            rank, _UNITS + lane, work.take(row), [titles[i] for i in row], zero, ("size_bytes", "prefetched")
        )
    gathered = spans.filter(pa.array(kind == SpanKind.UNSHARDED.value)).sort_by("start_ns")
    for unit in np.unique(numbers(gathered, "unit")):
        mine = gathered.filter(pa.array(numbers(gathered, "unit") == unit))
        name = unit_text(mine.column("name")[0].as_py())
        yield from _thread(rank, _GATHERED + int(unit), f"unsharded {name}")
        yield from _slices(
            rank, _GATHERED + int(unit), mine, [f"unsharded {name}"] * mine.num_rows, zero, ("size_bytes",)
        )


def _collectives(run: Run, rank: int, zero: int) -> Iterator[Event]:
    table = run.table("collectives", rank=rank).sort_by("start_ns")
    names = {int(u): str(n) for u, n in zip(*_units_of(run, rank), strict=True)}
    titles = [
        k if u == NO_UNIT else f"{k} {unit_text(names.get(int(u), ''))}"
        for k, u in zip(strings(table, "kind"), numbers(table, "unit"), strict=True)
    ]
    for lane, row in _lanes(table, nested=False):
        yield from _thread(rank, _COLLECTIVES + lane, "collectives" if not lane else f"collectives ({lane + 1})")
        told = ("size_bytes", "group_size", "transport", "group_description")
        yield from _slices(rank, _COLLECTIVES + lane, table.take(row), [titles[i] for i in row], zero, told)


def _units_of(run: Run, rank: int) -> tuple[Any, Any]:
    units = run.table("units", rank=rank)
    return numbers(units, "unit"), strings(units, "name")


def _lanes(table: pa.Table, *, nested: bool) -> list[tuple[int, list[int]]]:
    """Rows (in order of start) by lane: those of one lane follow one another, or lie within each other if `nested`."""
    lanes: list[tuple[list[int], list[int]]] = []
    for row, (start, end) in enumerate(zip(numbers(table, "start_ns"), numbers(table, "end_ns"), strict=True)):
        rows, ends = next((lane for lane in lanes if _has_room(lane[1], start, end, nested=nested)), ([], []))
        if not rows:
            lanes.append((rows, ends))
        rows.append(row)
        ends.append(int(end))
    return [(number, rows) for number, (rows, _) in enumerate(lanes)]


def _has_room(ends: list[int], start: int, end: int, *, nested: bool) -> bool:
    """Whether a span fits behind or, if `nested`, into those that are open at its start."""
    while ends and ends[-1] <= start:
        ends.pop()
    return not ends or (nested and ends[-1] >= end)


def _counters(run: Run, rank: int, zero: int) -> Iterator[Event]:
    """Stacked categories at each instant: all of them, so that the stack is a state that was."""
    samples = run.table("memory_samples", rank=rank)
    total, t_ns = numbers(samples, "allocated_bytes"), numbers(samples, "t_ns")
    rows = kept_rows(total, t_ns, max_rows=MAX_COUNTER_ROWS)
    ledger = timeline_at(run, rank=rank, events=rows)
    live = {str(c): values.tolist() for c, values in ledger.by_category.items() if values.any()}
    at = _us(ledger.t_ns, zero)
    for i, t in enumerate(at):
        yield _counter(rank, "live bytes", t, {name: values[i] for name, values in live.items()})
    for name in ("reserved_bytes", "active_bytes"):
        column = samples.column(name)
        if samples.num_rows and column.null_count == 0:
            for t, size in zip(at, column.to_numpy()[rows].tolist(), strict=True):
                yield _counter(rank, name.replace("_", " "), t, {"bytes": size})


def _slices(
    rank: int, thread: int, table: pa.Table, titles: list[str], zero: int, told: tuple[str, ...] = ()
) -> Iterator[Event]:
    start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
    values = [table.column(name).to_pylist() for name in told]
    for i, (t, duration) in enumerate(zip(_us(start, zero), _us(end - start, 0), strict=True)):
        args = {name: column[i] for name, column in zip(told, values, strict=True) if column[i] not in (None, "")}
        yield {"ph": "X", "pid": rank, "tid": thread, "ts": t, "dur": duration, "name": str(titles[i]), "args": args}


def _thread(rank: int, thread: int, name: str) -> Iterator[Event]:
    yield _meta("thread_name", rank, thread, {"name": name})
    yield _meta("thread_sort_index", rank, thread, {"sort_index": thread})


def _meta(name: str, rank: int, thread: int, args: Event) -> Event:
    return {"ph": "M", "pid": rank, "tid": thread, "ts": 0, "name": name, "args": args}


def _counter(rank: int, name: str, t: float, args: Event) -> Event:
    return {"ph": "C", "pid": rank, "tid": 0, "ts": t, "name": name, "args": args}


def _us(t_ns: Any, zero: int) -> list[float]:
    """Microseconds with three decimals: exact nanoseconds for runs of up to a month."""
    found: list[float] = np.round((t_ns - zero) / 1e3, 3).tolist()
    return found
