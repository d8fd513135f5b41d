"""Memory of one rank: its ledger over time, its peaks and what they are made of.

The ledger adds up: at every allocator event the categories sum to the allocated bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.tables import numbers, strings, words
from fsdp_profile.schema import CATEGORIES, NO_UNIT, SETUP_STEP, TEARDOWN_STEP, Category, Phase, SpanKind

Ints = np.ndarray[Any, np.dtype[np.int64]]

STATES: Final = (Category.SHARDED_PARAM, Category.SHARDED_GRAD, Category.OPTIMIZER_STATE)
"""What sharding divides."""

TRANSIENT: Final = (Category.UNSHARDED_PARAM, Category.ALL_GATHER, Category.REDUCE_SCATTER, Category.UNSHARDED_GRAD)
"""What sharding needs for a moment."""

WORK_KINDS = (
    SpanKind.FORWARD,
    SpanKind.BACKWARD,
    SpanKind.ALL_GATHER,
    SpanKind.COPY_OUT,
    SpanKind.REDUCE,
    SpanKind.REDUCE_SCATTER,
)
"""Spans during which a unit is at work; the others only say that it exists or is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Live bytes after each allocator event of one rank, in event order. All arrays have one length."""

    t_ns: Ints
    allocated_bytes: Ints
    by_category: dict[Category, Ints]
    """Every category of the schema, in its order; the values at one event sum to allocated_bytes."""
    event: Ints
    """Row of `memory_samples`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The high-water mark of live bytes over some events of one rank."""

    rank: int
    allocated_bytes: int
    step: int
    phase: str
    unit: int
    """The unit at work at that moment, NO_UNIT when none."""
    unit_name: str | None
    t_ns: int
    event: int
    """Row of `memory_samples`."""
    by_category: dict[Category, int]
    """Only categories that hold bytes, largest first."""

    def bytes_of(self, categories: Iterable[Category]) -> int:
        """Bytes of some categories together."""
        return sum(self.by_category.get(category, 0) for category in categories)

    @property
    def unknown_ratio(self) -> float:
        """Share of the peak that is not attributed, 0..1."""
        return self.by_category.get(Category.UNKNOWN, 0) / self.allocated_bytes if self.allocated_bytes else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Conservation:
    """How well the ledger adds up over all events of one rank."""

    num_events: int
    category_errors: int
    """Events at which the categories do not sum to the allocated bytes."""
    reported_errors: int | None
    """Events at which allocated + unreported frees differ from the allocator's own total; None if not reported."""


def timeline(run: Run, *, rank: int, step: int | None = None) -> Timeline:
    """The ledger over all events, or over those of one step (SETUP_STEP: before the first forward)."""
    samples = run.table("memory_samples", rank=rank)
    series = _series(run.table("allocations", rank=rank), samples.num_rows)
    event = np.arange(samples.num_rows, dtype=np.int64)
    if step is not None:
        event = event[numbers(samples, "step") == step]
    return Timeline(
        t_ns=numbers(samples, "t_ns")[event],
        allocated_bytes=numbers(samples, "allocated_bytes")[event],
        by_category={category: values[event] for category, values in zip(CATEGORIES, series, strict=True)},
        event=event,
    )


def peak(run: Run, *, rank: int, step: int | None = None) -> Peak | None:
    """The peak over the training steps (from the first forward on), or over one step; None without events.

    Of equal peaks the first one counts.
    """
    samples = run.table("memory_samples", rank=rank)
    steps = numbers(samples, "step")
    event = np.flatnonzero(steps >= 0 if step is None else steps == step)
    if len(event) == 0:
        return None
    allocated = numbers(samples, "allocated_bytes")
    row = int(event[np.argmax(allocated[event])])
    return peak_at(run, rank, row)


def setup_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Peak of live bytes before the first forward; None if that was not recorded."""
    found = peak(run, rank=rank, step=SETUP_STEP)
    return found.allocated_bytes if found else None


def peak_of_steps(run: Run, *, rank: int) -> list[Peak]:
    """The peak of every recorded training step, in order."""
    samples = run.table("memory_samples", rank=rank)
    steps, allocated = numbers(samples, "step"), numbers(samples, "allocated_bytes")
    # By step, then by size, then by time: the first row of a step is its peak.
    order = np.lexsort((np.arange(len(steps)), -allocated, steps))
    first = order[np.flatnonzero(np.diff(steps[order], prepend=TEARDOWN_STEP - 1))]
    return [peak_at(run, rank, int(row)) for row in first if steps[row] >= 0]


def peak_of_phases(run: Run, *, rank: int) -> dict[str, Peak]:
    """The peak of each phase over the training steps, in the order of Phase; phases without events are left out."""
    samples = run.table("memory_samples", rank=rank)
    phase, allocated = strings(samples, "phase"), numbers(samples, "allocated_bytes")
    trained = numbers(samples, "step") >= 0
    found = {}
    for word in Phase:
        events = np.flatnonzero((phase == word.value) & (trained | (word is Phase.SETUP)))
        if len(events):
            found[word.value] = peak_at(run, rank, int(events[np.argmax(allocated[events])]))
    return found


def blocks_at(run: Run, *, rank: int, event: int) -> pa.Table:
    """The blocks live after an event, largest first: rows of `allocations`."""
    blocks = run.table("allocations", rank=rank)
    live = (numbers(blocks, "start_event") <= event) & (numbers(blocks, "end_event") > event)
    return blocks.filter(pa.array(live)).sort_by([("size_bytes", "descending"), ("allocation", "ascending")])


def checkpointing_saves_bytes(run: Run, at: Peak) -> int | None:
    """Activations live at a moment but for those of the unit with most: what checkpointing each unit would save.

    An estimate; None where the activations do not belong to two units or more.
    """
    blocks = blocks_at(run, rank=at.rank, event=at.event)
    mine = strings(blocks, "category") == Category.ACTIVATION.value
    unit, size = numbers(blocks, "unit")[mine], numbers(blocks, "size_bytes")[mine]
    by_unit = [int(size[unit == which].sum()) for which in np.unique(unit) if which != NO_UNIT]
    return sum(by_unit) - max(by_unit) if len(by_unit) > 1 else None


def conservation(run: Run, *, rank: int) -> Conservation:
    """Check the law of the ledger at every event of a rank."""
    samples = run.table("memory_samples", rank=rank)
    series = _series(run.table("allocations", rank=rank), samples.num_rows)
    allocated = numbers(samples, "allocated_bytes")
    reported_errors = None
    if samples.num_rows and samples.column("reported_bytes").null_count == 0:
        reported = numbers(samples, "reported_bytes")
        reported_errors = int(np.sum(allocated + numbers(samples, "unreported_free_bytes") != reported))
    return Conservation(
        num_events=samples.num_rows,
        category_errors=int(np.sum(series.sum(axis=0) != allocated)),
        reported_errors=reported_errors,
    )


def reserved_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Most bytes the caching allocator held; None where there is no caching allocator (CPU)."""
    value = pc.max(run.table("memory_samples", rank=rank).column("reserved_bytes")).as_py()
    return int(value) if value is not None else None


def device_used_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Most bytes NVML saw in use on the rank's device; None where not recorded."""
    value = pc.max(run.table("device_samples", rank=rank).column("device_used_bytes")).as_py()
    return int(value) if value is not None else None


def _series(blocks: pa.Table, num_events: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Live bytes by category (row) after each event (column)."""
    return _cached_series(_Identity(blocks), num_events)


class _Identity:
    """A table as a cache key: tables of an unchanged file are the same object."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.table is self.table


@lru_cache(maxsize=16)
def _cached_series(key: _Identity, num_events: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    blocks = key.table
    delta = np.zeros((len(CATEGORIES), num_events + 1), np.int64)
    codes, vocabulary = words(blocks, "category")
    known = {category.value: row for row, category in enumerate(CATEGORIES)}
    unknown = known[Category.UNKNOWN.value]  # also what a category of a newer minor schema is to this release
    position = np.array([known.get(word, unknown) for word in vocabulary] or [0])
    row = position[codes] if len(codes) else np.zeros(0, np.int64)
    size = numbers(blocks, "size_bytes")
    np.add.at(delta, (row, numbers(blocks, "start_event")), size)
    end = np.minimum(numbers(blocks, "end_event"), num_events)
    np.subtract.at(delta, (row, end), size)
    return delta.cumsum(axis=1)[:, :num_events]


def peak_at(run: Run, rank: int, row: int) -> Peak:
    """What was live after an event (a row of `memory_samples`), whether it is a peak or not."""
    samples = run.table("memory_samples", rank=rank)
    series = _series(run.table("allocations", rank=rank), samples.num_rows)[:, row]
    order = np.argsort(-series, kind="stable")
    t_ns = int(numbers(samples, "t_ns")[row])
    unit = unit_at(run, rank=rank, t_ns=t_ns)
    return Peak(
        rank=rank,
        allocated_bytes=int(numbers(samples, "allocated_bytes")[row]),
        step=int(numbers(samples, "step")[row]),
        phase=str(strings(samples.slice(row, 1), "phase")[0]),
        unit=unit,
        unit_name=_unit_name(run, rank, unit),
        t_ns=t_ns,
        event=row,
        by_category={CATEGORIES[i]: int(series[i]) for i in order if series[i]},
    )


def unit_at(run: Run, *, rank: int, t_ns: int) -> int:
    """The unit at work at a moment: the innermost (latest begun) of its open spans, NO_UNIT when none."""
    spans = run.table("unit_spans", rank=rank)
    start = numbers(spans, "start_ns")
    is_work = np.isin(strings(spans, "kind").astype(str), [str(k) for k in WORK_KINDS])
    is_open = np.flatnonzero((start <= t_ns) & (numbers(spans, "end_ns") > t_ns) & is_work)
    if len(is_open) == 0:
        return NO_UNIT
    return int(numbers(spans, "unit")[is_open[np.argmax(start[is_open])]])


def _unit_name(run: Run, rank: int, unit: int) -> str | None:
    if unit == NO_UNIT:
        return None
    units = run.table("units", rank=rank)
    row = np.flatnonzero(numbers(units, "unit") == unit)
    return str(strings(units, "name")[row[0]]) if len(row) else None
