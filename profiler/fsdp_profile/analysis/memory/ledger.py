"""Memory of one rank: its ledger over time, its peaks and what they are made of.

The ledger adds up: at every allocator event the categories sum to the allocated bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import WORK_KINDS, is_word, unit_at, units_at
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.schema import NO_UNIT, SETUP_STEP, Phase
from fsdp_profile.ingest.live_bytes import Identity, Ints, LiveBytes, live_bytes
from fsdp_profile.ingest.tables import numbers, strings

__all__ = ["STATES", "TRANSIENT", "WORK_KINDS", "Conservation", "Ints", "Peak", "Timeline", "blocks_at",
           "checkpointing_saves_bytes", "conservation", "device_used_peak_bytes", "events_of_step", "peak", "peak_at",
           "peak_of_phases", "peak_of_steps", "pieces", "reserved_peak_bytes", "setup_peak_bytes", "timeline",
           "timeline_at", "unit_at"]  # fmt: skip

STATES: Final = (Category.PARAM, Category.GRAD, Category.OPTIMIZER_STATE)
"""What sharding divides."""

TRANSIENT: Final = (Category.UNSHARDED_PARAM, Category.ALL_GATHER, Category.REDUCE_SCATTER, Category.UNSHARDED_GRAD)
"""What sharding needs for a moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Live bytes after each allocator event of one rank, in event order. All arrays have one length."""

    t_ns: Ints
    allocated_bytes: Ints
    by_category: dict[Category, Ints]
    """Every category of the schema, in its order; the values at one event sum to allocated_bytes."""
    event: Ints
    """Row of `memory_samples`."""

    def taken(self, rows: Ints) -> "Timeline":
        """Some of its rows, in the order given."""
        by_category = {category: live[rows] for category, live in self.by_category.items()}
        return Timeline(
            t_ns=self.t_ns[rows],
            allocated_bytes=self.allocated_bytes[rows],
            by_category=by_category,
            event=self.event[rows],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The high-water mark of live bytes over some events of one rank."""

    rank: int
    allocated_bytes: int
    step: int
    phase: str
    unit: int
    """The active unit at that moment, NO_UNIT when none."""
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
    """The ledger over all events, or over those of one step (SETUP_STEP: before the first forward).

    Over all events of a long run it is large; `pieces` gives the same in parts, `timeline_at` the events one needs.
    """
    if step is not None:
        return timeline_at(run, rank=rank, events=events_of_step(run, rank=rank, step=step))
    return timeline_at(run, rank=rank, events=np.arange(run.table("memory_samples", rank=rank).num_rows))


def timeline_at(run: Run, *, rank: int, events: Ints) -> Timeline:
    """The ledger at some events: rows of `memory_samples`, in any order."""
    samples = run.table("memory_samples", rank=rank)
    live = _ledger(run, rank).at(events)
    return Timeline(
        t_ns=numbers(samples, "t_ns")[events],
        allocated_bytes=numbers(samples, "allocated_bytes")[events],
        by_category=dict(zip(CATEGORIES, live, strict=True)),
        event=events,
    )


def pieces(run: Run, *, rank: int) -> Iterator[Timeline]:
    """The ledger over all events, piece by piece."""
    samples = run.table("memory_samples", rank=rank)
    t_ns, allocated = numbers(samples, "t_ns"), numbers(samples, "allocated_bytes")
    for first, live in _ledger(run, rank).chunks():
        mine = slice(first, first + live.shape[1])
        yield Timeline(
            t_ns=t_ns[mine],
            allocated_bytes=allocated[mine],
            by_category=dict(zip(CATEGORIES, live, strict=True)),
            event=np.arange(mine.start, mine.stop),
        )


def events_of_step(run: Run, *, rank: int, step: int) -> Ints:
    """Rows of `memory_samples` of one step, in order."""
    runs = _steps_of(Identity(run.table("memory_samples", rank=rank))).get(step, [])
    return np.concatenate([np.arange(first, stop) for first, stop in runs] or [np.zeros(0, np.int64)])


def peak(run: Run, *, rank: int, step: int | None = None) -> Peak | None:
    """The peak over the training steps (from the first forward on), or over one step; None without events.

    Of equal peaks the first one counts.
    """
    highest = _highest_events(run, rank)
    if step is None:
        events = [event for of, event in highest.items() if of >= 0]
    else:
        events = [highest[step]] if step in highest else []
    if not events:
        return None
    allocated = numbers(run.table("memory_samples", rank=rank), "allocated_bytes")
    return peak_at(run, rank, max(events, key=lambda event: (int(allocated[event]), -event)))


def setup_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Peak of live bytes before the first forward; None if that was not recorded."""
    found = peak(run, rank=rank, step=SETUP_STEP)
    return found.allocated_bytes if found else None


def peak_of_steps(run: Run, *, rank: int) -> list[Peak]:
    """The peak of every recorded training step, in order."""
    highest = _highest_events(run, rank)
    return _peaks_at(run, rank, [highest[step] for step in sorted(highest) if step >= 0])


def peak_of_phases(run: Run, *, rank: int) -> dict[str, Peak]:
    """The peak of each phase over the training steps, in the order of Phase; phases without events are left out."""
    samples = run.table("memory_samples", rank=rank)
    allocated = numbers(samples, "allocated_bytes")
    trained = numbers(samples, "step") >= 0
    found = {}
    for word in Phase:
        mine = is_word(samples, "phase", word)
        if word is not Phase.SETUP:
            mine &= trained
        if mine.any():
            found[word.value] = int(np.where(mine, allocated, -1).argmax())
    return dict(zip(found, _peaks_at(run, rank, list(found.values())), strict=True))


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
    allocated = numbers(samples, "allocated_bytes")
    reported_errors = None
    if samples.num_rows and samples.column("reported_bytes").null_count == 0:
        reported = numbers(samples, "reported_bytes")
        reported_errors = int(np.sum(allocated + numbers(samples, "unreported_free_bytes") != reported))
    errors = [
        int(np.sum(total != allocated[first : first + len(total)])) for first, total in _ledger(run, rank).totals()
    ]
    return Conservation(num_events=samples.num_rows, category_errors=sum(errors), reported_errors=reported_errors)


def reserved_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Most bytes the caching allocator held; None where there is no caching allocator (CPU)."""
    value = pc.max(run.table("memory_samples", rank=rank).column("reserved_bytes")).as_py()
    return int(value) if value is not None else None


def device_used_peak_bytes(run: Run, *, rank: int) -> int | None:
    """Most bytes NVML saw in use on the rank's device; None where not recorded."""
    value = pc.max(run.table("device_samples", rank=rank).column("device_used_bytes")).as_py()
    return int(value) if value is not None else None


def peak_at(run: Run, rank: int, row: int) -> Peak:
    """What was live after an event (a row of `memory_samples`), whether it is a peak or not."""
    return _peaks_at(run, rank, [row])[0]


def _peaks_at(run: Run, rank: int, rows: list[int]) -> list[Peak]:
    """The same of several events."""
    if not rows:
        return []
    samples = run.table("memory_samples", rank=rank)
    events = np.array(rows, np.int64)
    ledger = timeline_at(run, rank=rank, events=events)
    live = np.stack(list(ledger.by_category.values()))
    order = np.argsort(-live, axis=0, kind="stable")
    in_time = np.argsort(ledger.t_ns, kind="stable")
    unit = np.empty(len(rows), np.int64)
    unit[in_time] = units_at(run, rank=rank, t_ns=ledger.t_ns[in_time])
    told = samples.select(["step", "phase"]).take(pa.array(events))
    phase, step = strings(told, "phase"), numbers(told, "step")
    return [
        Peak(
            rank=rank,
            allocated_bytes=int(ledger.allocated_bytes[i]),
            step=int(step[i]),
            phase=str(phase[i]),
            unit=int(unit[i]),
            unit_name=_unit_name(run, rank, int(unit[i])),
            t_ns=int(ledger.t_ns[i]),
            event=row,
            by_category={CATEGORIES[c]: int(live[c, i]) for c in order[:, i] if live[c, i]},
        )
        for i, row in enumerate(rows)
    ]


def _ledger(run: Run, rank: int) -> LiveBytes:
    num_events = run.table("memory_samples", rank=rank).num_rows
    return live_bytes(run.table("allocations", rank=rank), num_events)


def _highest_events(run: Run, rank: int) -> dict[int, int]:
    """Step -> its first event with most allocated bytes."""
    samples = run.table("memory_samples", rank=rank)
    allocated = numbers(samples, "allocated_bytes")
    found: dict[int, int] = {}
    for step, runs in _steps_of(Identity(samples)).items():
        highest = [first + int(allocated[first:stop].argmax()) for first, stop in runs]
        found[step] = max(highest, key=lambda event: (int(allocated[event]), -event))
    return found


@lru_cache(maxsize=128)
def _steps_of(samples: Identity) -> dict[int, list[tuple[int, int]]]:
    """Step -> its ranges of events, each as (first, one past the last)."""
    step = numbers(samples.table, "step")
    begins = np.flatnonzero(np.diff(step, prepend=step[:1] - 1))
    found: dict[int, list[tuple[int, int]]] = {}
    for first, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(step)], strict=False):
        found.setdefault(int(step[first]), []).append((first, stop))
    return found


def _unit_name(run: Run, rank: int, unit: int) -> str | None:
    if unit == NO_UNIT:
        return None
    units = run.table("units", rank=rank)
    row = np.flatnonzero(numbers(units, "unit") == unit)
    return str(strings(units, "name")[row[0]]) if len(row) else None
