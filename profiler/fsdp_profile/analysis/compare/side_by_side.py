"""Runs beside each other beyond the peak: by phase, by unit, and what a step costs in traffic and time.

Each run stands for its worst rank. Every row has one value a run, in the runs' order; None where it was not recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.collectives.traffic import step_traffic
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import Peak, blocks_at
from fsdp_profile.analysis.ranks.overview import rank_summary
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import unit_names
from fsdp_profile.analysis.time.breakdown import step_breakdowns
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.ingest.units import is_module

OF_UNITS: Final = (
    Category.PARAM,
    Category.UNSHARDED_PARAM,
    Category.GRAD,
    Category.UNSHARDED_GRAD,
    Category.ALL_GATHER,
    Category.REDUCE_SCATTER,
)
"""What belongs to a unit under every strategy: its parameters and gradients, and the buffers they travel in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One phase or unit in every run."""

    name: str
    sizes_bytes: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """What a step of one run costs: medians over its complete steps, the first apart."""

    step_ns: int | None
    size_bytes: int | None
    """Whole arrays that its collectives move."""
    wire_bytes: int | None
    """What of that a rank sends if every call is a ring: an estimate."""
    communication_ns: int | None
    exposed_ns: int | None
    """The part of the communication that is not hidden behind compute."""

    @property
    def exposed_ratio(self) -> float | None:
        """Exposed time as a share of the step."""
        return self.exposed_ns / self.step_ns if self.exposed_ns is not None and self.step_ns else None


def by_phase(runs: Sequence[Run], peaks: Sequence[Peak]) -> list[Row]:
    """The peak of every phase, in the order of Phase."""
    found = [ledger.peak_of_phases(run, rank=peak.rank) for run, peak in zip(runs, peaks, strict=True)]
    phases = [str(phase) for phase in Phase if any(str(phase) in mine for mine in found)]
    sizes = [tuple(mine[p].allocated_bytes if p in mine else None for mine in found) for p in phases]
    return [Row(name=phase, sizes_bytes=size) for phase, size in zip(phases, sizes, strict=True)]


def by_unit(runs: Sequence[Run], peaks: Sequence[Peak]) -> list[Row]:
    """Parameters, gradients and their buffers at each run's peak, by unit; units of the sharded runs, in their order.

    What a run without units keeps (DDP) belongs to the unit whose module it is in, by the parameter's name. Empty
    where no run shards, or they are wrapped in units of different names.
    """
    named = [_sharded_units(run, peak.rank) for run, peak in zip(runs, peaks, strict=True)]
    names = next((mine for mine in named if mine), [])
    if not names or any(mine and mine != names for mine in named):
        return []
    held = [_held(run, peak, names) for run, peak in zip(runs, peaks, strict=True)]
    sizes = [tuple(None if mine is None else mine.get(name, 0) for mine in held) for name in names]
    return [Row(name=name, sizes_bytes=size) for name, size in zip(names, sizes, strict=True)]


def slowest_rank(run: Run) -> int:
    """The rank with the longest median step; the first one where no times are known."""
    medians = {rank: rank_summary(run, rank=rank).median_step_ns or 0 for rank in run.ranks}
    return max(run.ranks, key=lambda rank: (medians[rank], -rank))


def step_cost(run: Run, *, rank: int) -> StepCost:
    """What a step of one rank costs: medians of the complete steps after the first."""
    moved = step_traffic(run, rank=rank)
    steps = run.table("steps", rank=rank)
    complete = numbers(steps, "step")[steps.column("complete").to_numpy(zero_copy_only=False)]
    later = sorted(int(step) for step in complete if step >= 0)[1:]
    parts = [part for step, part in sorted(step_breakdowns(run, rank=rank).items()) if step in later]
    return StepCost(
        step_ns=rank_summary(run, rank=rank).median_step_ns,
        size_bytes=moved.size_bytes if moved else None,
        wire_bytes=moved.wire_bytes if moved else None,
        communication_ns=int(np.median([p.communication_ns for p in parts])) if parts else None,
        exposed_ns=int(np.median([p.exposed_ns for p in parts])) if parts else None,
    )


def _sharded_units(run: Run, rank: int) -> list[str]:
    units = run.table("units", rank=rank)
    return [str(name) for name in strings(units, "name")[is_module(units)]]


def _held(run: Run, peak: Peak, names: Sequence[str]) -> dict[str, int] | None:
    """Bytes by unit; None for a run without units whose parameter names were not recorded."""
    blocks = blocks_at(run, rank=peak.rank, event=peak.event)
    is_of_units = np.isin(strings(blocks, "category").astype(str), [str(c) for c in OF_UNITS])
    own = unit_names(run, rank=peak.rank) if _sharded_units(run, peak.rank) else {}
    found: dict[str, int] = {}
    rows = zip(numbers(blocks, "unit"), strings(blocks, "name"), numbers(blocks, "size_bytes"), strict=True)
    for (unit, tensor, size), counts in zip(rows, is_of_units, strict=True):
        if counts:
            name = own.get(int(unit)) if int(unit) in own else _unit_of(str(tensor), names)
            if name is not None:
                found[name] = found.get(name, 0) + int(size)
            elif not own:
                return None
    return found


def _unit_of(tensor: str, names: Sequence[str]) -> str | None:
    """The innermost unit whose module a parameter is in; the root's where no other's, None for a nameless block."""
    inside = [name for name in names if not name or tensor.startswith(f"{name}.")]
    return max(inside, key=len) if tensor and inside else None
