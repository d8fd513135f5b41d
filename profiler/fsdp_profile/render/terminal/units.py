"""Units: what each keeps, what it gathers, and what its communication cost."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.present import units as present
from fsdp_profile.render.terminal.palette import QUIET
from fsdp_profile.render.terminal.parts import heading, note
from fsdp_profile.render.terminal.values import table_grid

LARGEST: Final = 8
"""Units of the overview's table."""


def largest_units(units: Sequence[UnitSummary], *, rank: int) -> RenderableType | None:
    """The short table of the overview; None without units."""
    return table_grid(present.largest_units_table(units, rank=rank, num=LARGEST))


def units_report(units: Sequence[UnitSummary], *, rank: int) -> RenderableType:
    """Every unit of a rank, and their sums."""
    if not units:
        return Group(heading("Units", f"rank {rank}"), Text("not recorded", style=QUIET))
    grid = table_grid(present.units_table(units, rank=rank, has_total=True))
    return Group(*([grid] if grid else []), Text(), note(present.units_note(units)))


def in_flight_report(found: Sequence[InFlight]) -> RenderableType | None:
    """How much was gathered at once, by phase; None where nothing is gathered."""
    grid = table_grid(present.in_flight_table(found))
    return Group(grid, Text(), note(present.IN_FLIGHT_NOTE)) if grid else None
