"""Queries of the Units page: the order of the units, and what was gathered at the same time; cached as in data.py."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units import in_flight as gathered
from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.schema import SpanKind

AS_BUILT: Final = "as the model was built"
ORDERS: Final[dict[str, Callable[[UnitSummary], int]]] = {
    "unsharded bytes": lambda unit: -unit.unsharded_bytes,
    "sharded bytes": lambda unit: -unit.sharded_bytes,
    "gathered time": lambda unit: -(unit.gathered_ns or 0),
    "exposed time": lambda unit: -(unit.exposed_ns or 0),
}
"""Largest first."""


def ordered(units: Sequence[UnitSummary], order: str) -> list[UnitSummary]:
    """The units in one of the orders; in that of their construction where it is none of them."""
    return sorted(units, key=ORDERS[order]) if order in ORDERS else list(units)


def in_flight(ref: RunRef, *, rank: int) -> list[InFlight]:
    """The most units and bytes gathered at once, by phase, over the complete steps."""
    found: list[InFlight] = ask(gathered.in_flight, ref, rank=rank)
    return found


def gathers(ref: RunRef, *, rank: int, step: int) -> pa.Table:
    """The gathers of one step, by time: rows of `gathers` in analysis/units/in_flight.py."""
    return ask(_gathers, ref, rank=rank, step=step)


def _gathers(run: Run, *, rank: int, step: int) -> pa.Table:
    found = gathered.gathers(run, rank=rank)
    return found.filter(pc.equal(found.column("step"), step))


def why_not_in_flight(ref: RunRef, *, rank: int) -> str | None:
    """Why it is not known what was gathered at once; None where it is known, or where no unit gathers."""
    found: str | None = ask(_why_not_in_flight, ref, rank=rank)
    return found


def _why_not_in_flight(run: Run, *, rank: int) -> str | None:
    if gathered.in_flight(run, rank=rank):
        return None
    if gathered.gathers(run, rank=rank).num_rows:
        return "no complete step in which a unit was gathered"
    is_gather = pc.equal(run.table("unit_spans", rank=rank).column("kind").cast(pa.string()), SpanKind.ALL_GATHER.value)
    return "the recording does not hold when units were resharded" if pc.any(is_gather).as_py() else None
