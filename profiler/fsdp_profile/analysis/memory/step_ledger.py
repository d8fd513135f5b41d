"""One step of one rank, to be drawn: its ledger, its phases, the active units, the spans in it.

A step's ledger begins with one row at the start of the step: what was live then.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.memory.ledger import Timeline
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import units_at
from fsdp_profile.analysis.spans.recorded import PhaseSpan, phase_spans, unit_names
from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.tables import numbers

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLedger:
    """The memory of one rank in one step."""

    rank: int
    step: int
    start_ns: int
    end_ns: int
    ledger: Timeline
    """The step's events after one row at start_ns; its event is the last before the step, -1 if none."""
    units: Ints
    """The active unit at each row of the ledger, NO_UNIT when none."""
    unit_names: dict[int, str]
    phases: tuple[PhaseSpan, ...]
    """In order of start."""


def recorded_steps(run: Run, *, rank: int) -> list[int]:
    """The training steps with allocator events, in order."""
    steps = np.unique(numbers(run.table("memory_samples", rank=rank), "step"))
    return [int(step) for step in steps if step >= 0]


def step_ledger(run: Run, *, rank: int, step: int) -> StepLedger:
    """The ledger of one step, what was live as it began included.

    Raises:
        InputError: no allocator events in this step.
    """
    events = memory.events_of_step(run, rank=rank, step=step)
    if len(events) == 0:
        have = ", ".join(map(str, recorded_steps(run, rank=rank))) or "none"
        raise InputError(f"{run.path}: rank {rank} has no allocator events in step {step} (steps with events: {have})")
    first, last = int(events[0]), int(events[-1])
    rows = np.arange(first - 1, last + 1)
    found = memory.timeline_at(run, rank=rank, events=np.maximum(rows, 0))
    start_ns, end_ns = _bounds(run, rank, step, (int(found.t_ns[1]), int(found.t_ns[-1])))
    t_ns = np.concatenate([[start_ns], found.t_ns[1:]])
    if first == 0:  # nothing was recorded before the step
        for values in (found.allocated_bytes, *found.by_category.values()):
            values[0] = 0
    ledger = replace(found, t_ns=t_ns, event=rows)
    return StepLedger(
        rank=rank,
        step=step,
        start_ns=start_ns,
        end_ns=end_ns,
        ledger=ledger,
        units=units_at(run, rank=rank, t_ns=t_ns),
        unit_names=unit_names(run, rank=rank),
        phases=phase_spans(run, rank=rank, step=step),
    )


def _bounds(run: Run, rank: int, step: int, events: tuple[int, int]) -> tuple[int, int]:
    """Start and end of a step, never narrower than its events."""
    steps = run.table("steps", rank=rank)
    row = np.flatnonzero(numbers(steps, "step") == step)
    if len(row) == 0:
        return events
    start, end = int(numbers(steps, "start_ns")[row[0]]), int(numbers(steps, "end_ns")[row[0]])
    return min(start, events[0]), max(end, events[1])
