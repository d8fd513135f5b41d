"""Units that are gathered at the same time: how many, how many bytes, and how many of them ahead of their use.

[Note: Gathered and ahead]
A unit is gathered from the issue of its all-gather to its reshard. It is ahead from the issue to its use: a gather
issued inside the unit's own forward or backward is never ahead, a prefetched one is until that forward or backward
begins. Times are the host's: on a device the gather itself may run later.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import is_word
from fsdp_profile.analysis.spans.recorded import unit_spans
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, SpanKind
from fsdp_profile.ingest.tables import numbers, strings

Ints = np.ndarray[Any, np.dtype[np.int64]]

_GATHERED = (Category.UNSHARDED_PARAM, Category.ALL_GATHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """The most that was gathered at once in one phase, over the complete steps of one rank."""

    phase: str
    step: int
    """The first step in which most bytes were gathered."""
    max_gathered: int
    """Most units gathered at once."""
    gathered_bytes: int
    """Most bytes of gathered units at once."""
    units: tuple[str, ...]
    """The units gathered at that moment, by time of their gather."""
    max_ahead: int
    """Most units gathered ahead of their use at once: the depth of the prefetch."""
    ahead_bytes: int
    """Most bytes gathered ahead of their use at once."""
    held_bytes: int | None
    """Most bytes of UNSHARDED_PARAM and ALL_GATHER at once, from the ledger: gathered parameters and the buffers of
    their all-gathers; None without allocator events."""


def gathers(run: Run, *, rank: int) -> pa.Table:
    """One row per gather of a unit in the training steps, by time.

    Columns: unit int32, name string, step int32, phase string, issue_ns, use_ns (start of the unit's next forward or
    backward; null: never used), end_ns (its reshard) int64, size_bytes int64, prefetched bool, prefetch string.
    """
    spans = unit_spans(run, rank=rank)
    spans = spans.filter(pa.array(numbers(spans, "step") >= 0))
    kind = strings(spans, "kind").astype(str)
    gathered = spans.filter(pa.array(kind == SpanKind.UNSHARDED.value)).sort_by("start_ns")
    used = spans.filter(pa.array(np.isin(kind, [SpanKind.FORWARD.value, SpanKind.BACKWARD.value])))
    issue, end = numbers(gathered, "start_ns"), numbers(gathered, "end_ns")
    use, is_used = _uses(numbers(gathered, "unit"), issue, end, used)
    return pa.table(
        {
            "unit": gathered.column("unit"),
            "name": gathered.column("name"),
            "step": gathered.column("step"),
            "phase": pa.array(strings(gathered, "phase"), pa.string()),
            "issue_ns": issue,
            "use_ns": pa.array(use, mask=~is_used),
            "end_ns": end,
            "size_bytes": _sizes(run, rank, gathered),
            "prefetched": gathered.column("prefetched"),
            "prefetch": pa.array(strings(gathered, "prefetch"), pa.string()),
        }
    )


def in_flight(run: Run, *, rank: int) -> list[InFlight]:
    """The most units and bytes gathered at once in forward, backward and evaluation.

    Only phases in which a unit was gathered are listed; the list is empty where nothing is gathered.
    """
    found = _times_of(gathers(run, rank=rank))
    steps = run.table("steps", rank=rank)
    complete = set(numbers(steps, "step")[steps.column("complete").to_numpy(zero_copy_only=False)].tolist())
    listed = []
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.EVALUATION):
        per_step = [p for step in sorted(complete) if step >= 0 and (p := _most(run, found, rank, step, phase))]
        if per_step:
            listed.append(_over_steps(per_step))
    return listed


def _sizes(run: Run, rank: int, gathered: pa.Table) -> Ints:
    """Bytes of each gather; the unit's unsharded bytes where the span holds no size."""
    units = run.table("units", rank=rank)
    whole = dict(zip(numbers(units, "unit").tolist(), numbers(units, "unsharded_bytes").tolist(), strict=True))
    rows = zip(numbers(gathered, "unit").tolist(), numbers(gathered, "size_bytes").tolist(), strict=True)
    return np.array([size or whole.get(unit, 0) for unit, size in rows], np.int64)


def _uses(unit: Ints, issue: Ints, end: Ints, used: pa.Table) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
    """When the unit of each gather was used first, and whether it was; a use that had begun counts from the issue."""
    use, is_used = issue.copy(), np.zeros(len(issue), bool)
    use_unit, use_start, use_end = numbers(used, "unit"), numbers(used, "start_ns"), numbers(used, "end_ns")
    for which in np.unique(unit):
        mine, its = np.flatnonzero(unit == which), np.flatnonzero(use_unit == which)
        its = its[np.argsort(use_end[its], kind="stable")]
        if not len(its):
            continue
        following = np.searchsorted(use_end[its], issue[mine], side="right")
        at = its[np.minimum(following, len(its) - 1)]
        begins = np.maximum(use_start[at], issue[mine])
        is_used[mine] = (following < len(its)) & (begins < end[mine])
        use[mine] = np.where(is_used[mine], begins, issue[mine])
    return use, is_used


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """Columns of gathers, in order of time."""

    issue_ns: Ints
    until_ns: Ints
    """When each gathered unit is used first; its end where it is never used."""
    end_ns: Ints
    size_bytes: Ints
    names: "np.ndarray[Any, np.dtype[np.object_]]"

    def between(self, start_ns: int, end_ns: int) -> "_Times":
        """The gathers that are open at some moment of a time window."""
        mine = (self.issue_ns < end_ns) & (self.end_ns > start_ns)
        return _Times(**{name: getattr(self, name)[mine] for name in self.__slots__})


def _times_of(found: pa.Table) -> _Times:
    end = numbers(found, "end_ns")
    use = found.column("use_ns")
    return _Times(
        issue_ns=numbers(found, "issue_ns"),
        until_ns=np.where(use.is_null().to_numpy(), end, use.fill_null(0).to_numpy()),
        end_ns=end,
        size_bytes=numbers(found, "size_bytes"),
        names=np.array(found.column("name").to_pylist(), object),
    )


def _most(run: Run, gathered: _Times, rank: int, step: int, phase: Phase) -> InFlight | None:
    """The most units and bytes gathered at once in one phase of one step; None where nothing is gathered."""
    phases = run.table("phases", rank=rank)
    is_it = is_word(phases, "phase", phase) & (numbers(phases, "step") == step)
    begins, ends = numbers(phases, "start_ns")[is_it], numbers(phases, "end_ns")[is_it]
    if not len(begins):
        return None
    found = gathered.between(int(begins.min()), int(ends.max()))
    issue, end, until, size = found.issue_ns, found.end_ns, found.until_ns, found.size_bytes
    # What is gathered or ahead changes only at these moments.
    moments = np.unique(np.concatenate([begins, issue, end, until]))
    inside = np.zeros(len(moments), bool)
    for first, last in zip(begins, ends, strict=True):
        inside |= (moments >= first) & (moments < last)
    moments = moments[inside]
    count, total = _sweep(moments, issue, end, size)
    ahead, ahead_bytes = _sweep(moments, issue, until, size)
    if not count.any():
        return None
    at = moments[np.lexsort((-count, -total))[0]]
    names = [str(name) for name in found.names[(issue <= at) & (at < end)]]
    return InFlight(
        phase=phase.value,
        step=step,
        max_gathered=int(count.max()),
        gathered_bytes=int(total.max()),
        units=tuple(names),
        max_ahead=int(ahead.max()),
        ahead_bytes=int(ahead_bytes.max()),
        held_bytes=_held(run, rank, step, phase),
    )


def _sweep(moments: Ints, start: Ints, end: Ints, size: Ints) -> tuple[Ints, Ints]:
    """How many spans are open at each moment, and the sum of their sizes; a span is closed at its end."""
    by_start, by_end = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
    begun = np.searchsorted(start[by_start], moments, side="right")
    over = np.searchsorted(end[by_end], moments, side="right")
    begun_bytes = np.concatenate([[0], np.cumsum(size[by_start])])[begun]
    over_bytes = np.concatenate([[0], np.cumsum(size[by_end])])[over]
    return begun - over, begun_bytes - over_bytes


def _held(run: Run, rank: int, step: int, phase: Phase) -> int | None:
    ledger = memory.timeline(run, rank=rank, step=step)
    if not len(ledger.event):
        return None
    phases = run.table("memory_samples", rank=rank).select(["phase"]).take(pa.array(ledger.event))
    mine = is_word(phases, "phase", phase)
    held = sum((ledger.by_category[category] for category in _GATHERED), np.zeros(len(ledger.event), np.int64))
    return int(held[mine].max()) if mine.any() else None


def _over_steps(found: list[InFlight]) -> InFlight:
    most = max(found, key=lambda f: (f.gathered_bytes, -f.step))
    held = [f.held_bytes for f in found if f.held_bytes is not None]
    return InFlight(
        phase=most.phase,
        step=most.step,
        max_gathered=max(f.max_gathered for f in found),
        gathered_bytes=most.gathered_bytes,
        units=most.units,
        max_ahead=max(f.max_ahead for f in found),
        ahead_bytes=max(f.ahead_bytes for f in found),
        held_bytes=max(held, default=None),
    )
