"""Steps, phases, units and their spans of a trace recorded by others, from its annotations.

[Note: Steps and phases of a foreign trace]
`ProfilerStep#N` is step N; what lies before the first is SETUP_STEP, after the last TEARDOWN_STEP; without any the
whole recording is step 0, not complete. In a step, OPTIMIZER is inside `Optimizer.step#...`, BACKWARD from the
first to the last `autograd::engine::evaluate_function` with no forward between, FORWARD from a wrapper's forward to
the backward. What no annotation names is OTHER.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.core.schema import NO_UNIT, SETUP_STEP, TEARDOWN_STEP, Phase, SpanKind, Strategy

Array = np.ndarray[Any, Any]

_STEP: Final = re.compile(r"^ProfilerStep#(\d{1,9})$")
_BACKWARD: Final = "autograd::engine::evaluate_function"
_OPTIMIZER: Final = "Optimizer.step#"
_FORWARDS: Final = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward", "FSDP::root_pre_forward",
                    "FSDP::pre_forward")  # fmt: skip
_UNIT: Final = re.compile(r"^FSDP::(\w+)(?: \((.*)\))?$")
_UNIT_SPANS: Final = {
    "all_gather": SpanKind.ALL_GATHER,
    "all_gather_copy_out": SpanKind.COPY_OUT,
    "post_backward_reshard": SpanKind.RESHARD,
    "post_backward_reduce": SpanKind.REDUCE,
}
_UNIT_REGIONS: Final = {
    "pre_forward": ("post_forward", SpanKind.FORWARD),
    "pre_backward": ("post_backward_reduce", SpanKind.BACKWARD),
}
"""Annotation at the begin -> the one at the end, and what lies between."""
_WRAPPERS: Final = (
    ("FSDP::", Strategy.FSDP2),
    ("FullyShardedDataParallel.", Strategy.FSDP1),
    ("DistributedDataParallel.", Strategy.DDP),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotations:
    """Named spans of host time, by start."""

    names: list[str]
    name: Array
    """Into `names`."""
    start_ns: Array
    end_ns: Array

    def where(self, *prefixes: str) -> Array:
        """Rows whose name begins so."""
        chosen = np.array([n.startswith(prefixes) for n in self.names] or [False], np.bool_)
        found: Array = np.flatnonzero(chosen[self.name]) if len(self.name) else np.zeros(0, np.int64)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitMarks:
    """Units by the annotations that carry their names; the arrays have one row per span."""

    names: list[str]
    """In the order first seen; '' is the root."""
    unit: Array
    kind: list[SpanKind]
    start_ns: Array
    end_ns: Array

    def around(self, t_ns: Array, *kinds: SpanKind) -> Array:
        """The unit whose span of one of these kinds is around each moment; NO_UNIT when none."""
        found = np.full(len(t_ns), NO_UNIT, np.int64)
        rows = np.array([row for row, kind in enumerate(self.kind) if kind in kinds], np.int64)
        if len(rows) == 0:
            return found
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        candidate = rows[np.maximum(np.searchsorted(self.start_ns[rows], t_ns, side="right") - 1, 0)]
        inside = (self.start_ns[candidate] <= t_ns) & (t_ns <= self.end_ns[candidate])
        return np.where(inside, self.unit[candidate], NO_UNIT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Steps and phases of one recording."""

    step: Array
    """Numbers of the annotated steps, by start; [0] when there are none."""
    start_ns: Array
    end_ns: Array
    is_annotated: bool
    phase_start_ns: Array
    """When each phase begins; the first is before everything."""
    phases: list[Phase]
    first_ns: int
    last_ns: int

    def steps(self, t_ns: Array) -> Array:
        """The step at each moment; see the note above."""
        row = np.searchsorted(self.start_ns, t_ns, side="right") - 1
        found = np.where(row < 0, SETUP_STEP, self.step[np.maximum(row, 0)])
        if not self.is_annotated:
            return np.full(len(t_ns), self.step[0], np.int64)
        return np.where(t_ns > self.end_ns[-1], TEARDOWN_STEP, found)

    def phase_codes(self, t_ns: Array) -> Array:
        """Index into tuple(Phase) at each moment."""
        words = list(Phase)
        codes = np.array([words.index(p) for p in self.phases])
        row = np.maximum(np.searchsorted(self.phase_start_ns, t_ns, side="right") - 1, 0)
        return np.where(self.steps(t_ns) == SETUP_STEP, words.index(Phase.SETUP), codes[row])


def timeline(annotations: Annotations, *, first_ns: int, last_ns: int) -> Timeline:
    """Steps and phases of a recording from its first to its last moment."""
    numbers = [int(m[1]) if (m := _STEP.match(name)) else -1 for name in annotations.names]
    number = np.array([*numbers, -1], np.int64)[annotations.name] if len(annotations.name) else annotations.name
    rows = np.flatnonzero(number >= 0)
    spans: dict[int, tuple[int, int]] = {}
    for row in rows.tolist():  # tens of them
        start, end = int(annotations.start_ns[row]), int(annotations.end_ns[row])
        known = spans.get(int(number[row]), (start, end))
        spans[int(number[row])] = (min(start, known[0]), max(end, known[1]))
    is_annotated = bool(spans)
    steps = sorted((span, step) for step, span in spans.items()) or [((first_ns, last_ns), 0)]
    moments, phases = _phases(annotations, first_ns)
    return Timeline(
        step=np.array([step for _, step in steps], np.int64),
        start_ns=np.array([span[0] for span, _ in steps], np.int64),
        end_ns=np.array([span[1] for span, _ in steps], np.int64),
        is_annotated=is_annotated,
        phase_start_ns=moments,
        phases=phases,
        first_ns=first_ns,
        last_ns=last_ns,
    )


def _phases(annotations: Annotations, first_ns: int) -> tuple[Array, list[Phase]]:
    """When each phase begins, from a first OTHER on."""
    backward, optimizer = annotations.where(_BACKWARD), annotations.where(_OPTIMIZER)
    forward = annotations.where(*_FORWARDS)
    start, end = annotations.start_ns, annotations.end_ns
    # A forward inside the backward's operators is a recomputation.
    forward = forward[~_inside(start[forward], start[backward], end[backward])]
    marks = [(int(start[r]), int(end[r]), Phase.OPTIMIZER) for r in optimizer.tolist()]
    marks += [(int(start[r]), int(end[r]), Phase.FORWARD) for r in forward.tolist()]
    breaks = np.array(sorted(m[0] for m in marks), np.int64)
    between = np.searchsorted(breaks, start[backward])
    for stretch in np.unique(between):
        mine = backward[between == stretch]
        marks.append((int(start[mine].min()), int(end[mine].max()), Phase.BACKWARD))
    moments, phases = [first_ns], [Phase.OTHER]
    marks.sort()
    for position, (begin, stop, phase) in enumerate(marks):
        following = marks[position + 1] if position + 1 < len(marks) else None
        if phases[-1] is not phase:
            moments.append(begin)
            phases.append(phase)
        if phase is Phase.FORWARD and following is not None and following[2] in (Phase.FORWARD, Phase.BACKWARD):
            continue  # the forward goes on to there
        if following is None or following[0] > stop:
            moments.append(stop)
            phases.append(Phase.OTHER)
    return np.array(moments, np.int64), phases


def _inside(t_ns: Array, start: Array, end: Array) -> Array:
    """Whether each moment lies in one of some spans that follow each other."""
    if not len(start):
        return np.zeros(len(t_ns), np.bool_)
    order = np.argsort(start, kind="stable")
    latest = np.maximum.accumulate(end[order])
    row = np.searchsorted(start[order], t_ns, side="right") - 1
    found: Array = (row >= 0) & (t_ns <= latest[np.maximum(row, 0)])
    return found


def unit_marks(annotations: Annotations) -> UnitMarks:
    """Units and their spans by `FSDP::...` annotations; none when no annotation carries a name."""
    parsed = [_UNIT.match(name) for name in annotations.names]
    is_named = any(m is not None and m[2] is not None for m in parsed)
    of_unit = np.array([is_named and m is not None and _is_of_unit(m[1]) for m in [*parsed, None]], np.bool_)
    rows = np.flatnonzero(of_unit[annotations.name]) if len(annotations.name) else np.zeros(0, np.int64)
    rows = rows[np.argsort(annotations.start_ns[rows], kind="stable")]
    units: dict[str, int] = {}
    found: list[tuple[int, SpanKind, int, int]] = []
    begun: dict[tuple[int, str], int] = {}
    for row in rows.tolist():
        match = parsed[int(annotations.name[row])]
        assert match is not None
        what, unit = match[1], units.setdefault(match[2] or "", len(units))
        start, end = int(annotations.start_ns[row]), int(annotations.end_ns[row])
        if what in _UNIT_SPANS:
            found.append((unit, _UNIT_SPANS[what], start, end))
        if what in _UNIT_REGIONS:
            begun[unit, what] = start
        for opening, (closing, kind) in _UNIT_REGIONS.items():
            if what == closing and (unit, opening) in begun:
                found.append((unit, kind, begun.pop((unit, opening)), start if closing in _UNIT_SPANS else end))
    found.sort(key=lambda f: f[2])
    return UnitMarks(
        names=list(units),
        unit=np.array([f[0] for f in found], np.int64),
        kind=[f[1] for f in found],
        start_ns=np.array([f[2] for f in found], np.int64),
        end_ns=np.array([f[3] for f in found], np.int64),
    )


def _is_of_unit(what: str) -> bool:
    closings = {closing for closing, _ in _UNIT_REGIONS.values()}
    return what in _UNIT_SPANS or what in _UNIT_REGIONS or what in closings


def strategy_of(annotations: Annotations) -> Strategy:
    """The wrapper whose annotations are there."""
    for prefix, strategy in _WRAPPERS:
        if len(annotations.where(prefix)):
            return strategy
    return Strategy.NONE
