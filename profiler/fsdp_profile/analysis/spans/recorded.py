"""Phases, units and their spans of one rank, as they were recorded."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.tables import numbers, strings


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseSpan:
    """One phase of the training loop, with its start and end."""

    phase: str
    start_ns: int
    end_ns: int


def phase_spans(run: Run, *, rank: int, step: int) -> tuple[PhaseSpan, ...]:
    """The phases of one step, in order of start."""
    phases = run.table("phases", rank=rank)
    mine = phases.filter(pa.array(numbers(phases, "step") == step)).sort_by("start_ns")
    rows = zip(strings(mine, "phase"), numbers(mine, "start_ns"), numbers(mine, "end_ns"), strict=True)
    return tuple(PhaseSpan(phase=str(phase), start_ns=int(start), end_ns=int(end)) for phase, start, end in rows)


def spans_between(run: Run, *, rank: int, start_ns: int, end_ns: int) -> pa.Table:
    """Rows of `unit_spans` that overlap a time window, including those that began before it."""
    spans = unit_spans(run, rank=rank)
    inside = (numbers(spans, "start_ns") < end_ns) & (numbers(spans, "end_ns") > start_ns)
    return spans.filter(pa.array(inside)).sort_by("start_ns")


def unit_names(run: Run, *, rank: int) -> dict[int, str]:
    """Unit number -> its name ('' is the root)."""
    units = run.table("units", rank=rank)
    return {int(unit): str(name) for unit, name in zip(numbers(units, "unit"), strings(units, "name"), strict=True)}


def unit_spans(run: Run, *, rank: int, step: int | None = None) -> pa.Table:
    """Rows of `unit_spans`, of one step or of all, with the unit's name as column `name`.

    An UNSHARDED span still open at the end of the recording ends with the last step.
    """
    spans = run.table("unit_spans", rank=rank)
    units = run.table("units", rank=rank)
    name_of = dict(zip(numbers(units, "unit").tolist(), strings(units, "name").tolist(), strict=True))
    if step is not None:
        spans = spans.filter(pa.array(numbers(spans, "step") == step))
    names = pa.array([name_of.get(u, "") for u in numbers(spans, "unit").tolist()], pa.string())
    end = numbers(spans, "end_ns")
    capped = pa.array(np.where(end == NOT_FREED, _last_ns(run, rank), end), pa.int64())
    spans = spans.set_column(spans.column_names.index("end_ns"), "end_ns", capped)
    return spans.append_column("name", names)


def _last_ns(run: Run, rank: int) -> int:
    steps = run.table("steps", rank=rank)
    return int(numbers(steps, "end_ns").max()) if steps.num_rows else 0
