"""The facts of a run that are compared with a baseline: bytes by category and unit, and counts per step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import unit_names
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.schema import NO_UNIT, SpanKind
from fsdp_profile.core.units import is_bucket
from fsdp_profile.ingest.tables import numbers, strings


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A high-water mark over the training steps of all ranks."""

    size_bytes: int
    spread_bytes: int
    """By how much it may differ between two recordings: the difference between the steps after the first, on the rank
    where it is highest, or the largest block that the transport frees at an arbitrary time (CPU), whichever is more."""
    rank: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitFacts:
    """One unit, on the rank where it does most."""

    gathers: float
    """Median of the complete steps."""
    reshards: float | None
    """None where gathers but no reshards were recorded (imported traces)."""
    sharded_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CallKey:
    """Collectives that are counted together."""

    group: str
    """The name of the group and its size."""
    kind: str
    owner: str
    """'of units' or 'of no unit'."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One run."""

    peak: Measured | None
    reserved: Measured | None
    by_category: dict[str, Measured]
    by_unit: dict[str, dict[str, int]]
    """Category -> unit -> bytes at the moment at which the category is highest."""
    units: dict[str, UnitFacts]
    calls: dict[CallKey, float]
    """Collectives of a step: median over the complete steps, on the rank with most."""


def facts_of(run: Run) -> Facts:
    """The facts of a run."""
    by_category: dict[str, Measured] = {}
    by_unit: dict[str, dict[str, int]] = {}
    peaks, reserved = [], []
    for rank in run.ranks:
        samples = run.table("memory_samples", rank=rank)
        steps = numbers(samples, "step")
        if not (steps >= 0).any():
            continue
        late = _late_blocks(run, rank)
        allocated = [(np.arange(len(steps)), numbers(samples, "allocated_bytes"))]
        peaks.append(_highest(_of_steps(allocated, steps), rank, late_bytes=max(late.values(), default=0)))
        if samples.column("reserved_bytes").null_count == 0:
            held = [(np.arange(len(steps)), numbers(samples, "reserved_bytes"))]
            reserved.append(_highest(_of_steps(held, steps), rank))
        for category, of_steps in _categories_of_steps(run, rank, steps).items():
            found = _highest(of_steps, rank, late_bytes=late.get(category.value, 0))
            before = by_category.get(category.value)
            if found.size_bytes and (before is None or found.size_bytes > before.size_bytes):
                by_category[category.value] = found
                _, first = max(of_steps.values(), key=lambda most: (most[0], -most[1]))
                by_unit[category.value] = _of_units(run, rank, category.value, first)
    return Facts(
        peak=max(peaks, key=lambda m: m.size_bytes, default=None),
        reserved=max(reserved, key=lambda m: m.size_bytes, default=None),
        by_category=by_category,
        by_unit=by_unit,
        units=_units(run),
        calls=_calls(run),
    )


def _late_blocks(run: Run, rank: int) -> dict[str, int]:
    """Category -> its largest block of the training steps that was freed on a thread the profiler does not see.

    From one recording to the next, one more or one less of these blocks is live at a given moment.
    """
    blocks = run.table("allocations", rank=rank)
    is_late = blocks.column("free_unreported").to_numpy(zero_copy_only=False) & (numbers(blocks, "step") >= 0)
    category, size = strings(blocks, "category")[is_late], numbers(blocks, "size_bytes")[is_late]
    return {str(word): int(size[category == word].max()) for word in np.unique(category.astype(str))}


_Most = dict[int, tuple[int, int]]
"""Training step -> its most bytes, and the first event that has them."""


def _categories_of_steps(run: Run, rank: int, steps: ledger.Ints) -> dict[Category, _Most]:
    found: dict[Category, _Most] = {category: {} for category in CATEGORIES}
    for piece in ledger.pieces(run, rank=rank):
        for category, live in piece.by_category.items():
            for step, most in _of_steps([(piece.event, live)], steps).items():
                found[category][step] = max(found[category].get(step, most), most, key=lambda m: (m[0], -m[1]))
    return found


def _of_steps(parts: list[tuple[ledger.Ints, ledger.Ints]], steps: ledger.Ints) -> _Most:
    found: _Most = {}
    for event, live in parts:
        of = steps[event]
        begins = np.flatnonzero(np.diff(of, prepend=of[:1] - 1))
        for first, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(of)], strict=False):
            at = first + int(live[first:stop].argmax())
            most = (int(live[at]), int(event[at]))
            if of[first] >= 0:
                found[int(of[first])] = max(found.get(int(of[first]), most), most, key=lambda m: (m[0], -m[1]))
    return found


def _highest(of_steps: _Most, rank: int, *, late_bytes: int = 0) -> Measured:
    later = [size for step, (size, _) in of_steps.items() if step > min(of_steps)]
    varies = max(later) - min(later) if later else 0
    most = max(size for size, _ in of_steps.values())
    return Measured(size_bytes=most, spread_bytes=max(varies, late_bytes), rank=rank)


def _of_units(run: Run, rank: int, category: str, event: int) -> dict[str, int]:
    blocks = ledger.blocks_at(run, rank=rank, event=event)
    blocks = blocks.filter(pa.array(strings(blocks, "category") == category))
    names, unit, size = unit_names(run, rank=rank), numbers(blocks, "unit"), numbers(blocks, "size_bytes")
    return {names[int(u)]: int(size[unit == u].sum()) for u in np.unique(unit) if u != NO_UNIT and int(u) in names}


def complete_steps(run: Run, rank: int) -> list[int]:
    """The training steps of a rank that were seen to their end."""
    steps = run.table("steps", rank=rank)
    complete = steps.column("complete").to_numpy(zero_copy_only=False)
    return [int(step) for step in numbers(steps, "step")[complete] if step >= 0]


def _units(run: Run) -> dict[str, UnitFacts]:
    """Units by name; DDP's buckets are numbered anew when they are rebuilt, and are not compared."""
    found: dict[str, UnitFacts] = {}
    for rank in run.ranks:
        units, spans = run.table("units", rank=rank), run.table("unit_spans", rank=rank)
        owner, kind, step = numbers(spans, "unit"), strings(spans, "kind"), numbers(spans, "step")
        complete = complete_steps(run, rank)
        names = zip(
            numbers(units, "unit"), strings(units, "name"), strings(units, "kind"), numbers(units, "sharded_bytes"),
            strict=True,
        )  # fmt: skip
        has_reshards = bool((kind == SpanKind.RESHARD.value).any())
        for unit, name, unit_kind, size in names:
            if is_bucket(str(unit_kind)):
                continue
            gathers = _per_step(step[(owner == unit) & (kind == SpanKind.ALL_GATHER.value)], complete)
            reshards = _per_step(step[(owner == unit) & (kind == SpanKind.RESHARD.value)], complete)
            before = found.get(str(name))
            if before is None or gathers > before.gathers:
                found[str(name)] = UnitFacts(
                    gathers=gathers, reshards=reshards if has_reshards else None, sharded_bytes=int(size)
                )
    return found


def _calls(run: Run) -> dict[CallKey, float]:
    found: dict[CallKey, float] = {}
    for rank in run.ranks:
        complete = complete_steps(run, rank)
        counts: dict[CallKey, dict[int, int]] = {}
        for row in _counted(run.table("collectives", rank=rank)):
            size = "?" if row["group_size"] is None else row["group_size"]
            key = CallKey(
                group=f"{row['group_description'] or row['group'] or '(not named)'} of {size} ranks",
                kind=row["kind"],
                owner="of units" if row["is_owned"] else "of no unit",
            )
            by_step = counts.setdefault(key, {})
            by_step[row["step"]] = by_step.get(row["step"], 0) + row["count_all"]
        for key, by_step in counts.items():
            median = float(np.median([by_step.get(step, 0) for step in complete])) if complete else 0.0
            found[key] = max(found.get(key, 0.0), median)
    return {key: count for key, count in found.items() if count}


def _counted(table: pa.Table) -> list[dict[str, Any]]:
    """How many collectives of each group, kind and step, by whether a unit asked for them."""
    text = {name: table.column(name).cast(pa.string()) for name in ("group_description", "group", "kind")}
    other = {name: table.column(name) for name in ("group_size", "step")}
    keyed = pa.table({**text, **other, "is_owned": pa.array(numbers(table, "unit") != NO_UNIT)})
    return list(keyed.group_by(keyed.column_names).aggregate([([], "count_all")]).to_pylist())


def _per_step(step: ledger.Ints, complete: list[int]) -> float:
    """Median over the complete steps of how many rows each has."""
    return float(np.median([int((step == number).sum()) for number in complete])) if complete else 0.0
