"""Memory that grows from step to step: leaks and slow growth, by category and call site.

[Note: What grows]
Live bytes are compared at the ends of complete steps. The first step does not count: gradients and optimizer states
are born in it. A category grows when its live bytes rose from each end to the next, over at least MIN_STEPS ends. Its
call sites are the blocks of those steps that were still alive one whole step later.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import is_kind, is_word
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.schema import NOT_FREED, SpanKind
from fsdp_profile.ingest.tables import numbers, strings

MIN_STEPS: Final = 4
"""Ends of steps after the first one that are needed to call it growth."""
MAX_SITES: Final = 5

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Blocks of one origin that outlived their step."""

    operator: str
    name: str
    unit: int
    phase: str
    bytes_per_step: int
    """Median over the steps in which it left anything."""
    num_blocks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """A category that grows step over step."""

    category: Category
    bytes_per_step: int
    """Median growth from one end of a step to the next."""
    first_bytes: int
    """At the end of the first step compared."""
    last_bytes: int
    steps: tuple[int, ...]
    """The steps compared."""
    sites: tuple[Site, ...]
    """Where the blocks come from, most bytes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptUnsharded:
    """A unit whose gathered parameters are still in memory at the end of a step, although it was resharded."""

    unit: int
    name: str
    step: int
    """The first such step."""
    size_bytes: int


def growth(run: Run, *, rank: int) -> list[Growth]:
    """Categories that grow, most bytes a step first; empty where none does or too few steps were recorded."""
    ends = _ends_of_steps(run, rank)
    later = {step: event for step, event in ends.items() if step > min(ends)} if ends else {}
    if len(later) < MIN_STEPS:
        return []
    ledger = memory.timeline_at(run, rank=rank, events=np.array(list(later.values())))
    found = []
    for category in CATEGORIES:
        live = ledger.by_category[category]
        rises = np.diff(live)
        if (rises > 0).all():
            found.append(
                Growth(
                    category=category,
                    bytes_per_step=int(np.median(rises)),
                    first_bytes=int(live[0]),
                    last_bytes=int(live[-1]),
                    steps=tuple(later),
                    sites=_sites(run, rank, category, later),
                )
            )
    return sorted(found, key=lambda g: -g.bytes_per_step)


def kept_unsharded(run: Run, *, rank: int) -> list[KeptUnsharded]:
    """Units with gathered parameters alive at the end of a step with no gather open: something refers to them."""
    blocks, spans = run.table("allocations", rank=rank), run.table("unit_spans", rank=rank)
    is_gather = is_kind(spans, SpanKind.UNSHARDED)
    names = dict(
        zip(
            numbers(run.table("units", rank=rank), "unit").tolist(),
            strings(run.table("units", rank=rank), "name").tolist(),
            strict=True,
        )
    )
    blocks = blocks.filter(pa.array(is_word(blocks, "category", Category.UNSHARDED_PARAM)))
    owner, begin, end = (numbers(blocks, name) for name in ("unit", "start_event", "end_event"))
    steps = run.table("steps", rank=rank)
    end_ns = dict(zip(numbers(steps, "step").tolist(), numbers(steps, "end_ns").tolist(), strict=True))
    found: dict[int, KeptUnsharded] = {}
    for step, event in _ends_of_steps(run, rank).items():
        alive = (begin <= event) & (end > event)
        for unit in np.unique(owner[alive]).tolist():
            mine = is_gather & (numbers(spans, "unit") == unit)
            t_ns = end_ns[step]
            is_open = mine & (numbers(spans, "start_ns") <= t_ns) & (numbers(spans, "end_ns") > t_ns)
            if unit in names and unit not in found and mine.any() and not is_open.any():
                size = int(numbers(blocks, "size_bytes")[alive & (owner == unit)].sum())
                found[unit] = KeptUnsharded(unit=unit, name=str(names[unit]), step=step, size_bytes=size)
    return list(found.values())


def _ends_of_steps(run: Run, rank: int) -> dict[int, int]:
    """Complete and recorded step -> its last event."""
    steps = run.table("steps", rank=rank)
    usable = steps.column("complete").to_numpy(zero_copy_only=False)
    usable = usable & steps.column("recorded").to_numpy(zero_copy_only=False)
    found = {}
    for step in sorted(numbers(steps, "step")[usable].tolist()):
        events = memory.events_of_step(run, rank=rank, step=int(step))
        if step >= 0 and len(events):
            found[int(step)] = int(events[-1])
    return found


def _sites(run: Run, rank: int, category: Category, ends: dict[int, int]) -> tuple[Site, ...]:
    blocks = run.table("allocations", rank=rank)
    end, step, size = (numbers(blocks, name) for name in ("end_event", "step", "size_bytes"))
    order = list(ends)
    next_end = {a: ends[b] for a, b in pairwise(order)}
    outlives = np.array([next_end.get(int(s), NOT_FREED) for s in step.tolist()], np.int64)
    kept = np.flatnonzero(is_word(blocks, "category", category) & (end > outlives))
    keys = list(
        zip(
            *(strings(blocks.take(pa.array(kept)), name).tolist() for name in ("operator", "name", "phase")),
            numbers(blocks, "unit")[kept].tolist(),
            strict=True,
        )
    )
    by_step: dict[tuple[str, str, str, int], Counter[int]] = {}
    count: Counter[tuple[str, str, str, int]] = Counter()
    for key, row in zip(keys, kept.tolist(), strict=True):
        by_step.setdefault(key, Counter())[int(step[row])] += int(size[row])
        count[key] += 1
    sites = [
        Site(
            operator=operator,
            name=name,
            unit=unit,
            phase=phase,
            bytes_per_step=int(np.median(list(found.values()))),
            num_blocks=count[operator, name, phase, unit],
        )
        for (operator, name, phase, unit), found in by_step.items()
    ]
    return tuple(sorted(sites, key=lambda s: (-s.bytes_per_step, s.operator))[:MAX_SITES])
