"""Where the time of a rank's device went, step by step, and what its collectives cost in each direction."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.present.breakdown import meaning, steps_table
from fsdp_profile.present.collectives import directions_table
from fsdp_profile.render.terminal.parts import note
from fsdp_profile.render.terminal.values import table_grid

MAX_STEPS: Final = 8
"""Steps listed; `--json` has all."""


def breakdown_report(found: Mapping[int, TimeBreakdown], *, rank: int) -> RenderableType | None:
    """The parts of each step; None where no kernels or operators were recorded."""
    grid = table_grid(steps_table(found, rank=rank, max_steps=MAX_STEPS))
    return Group(grid, Text(), note(meaning(found.values()))) if grid else None


def directions_report(rows: Any, *, rank: int) -> RenderableType | None:
    """Collectives by step, phase and kind (rows of `exposed_by_step`); None without any."""
    return table_grid(directions_table(rows, rank=rank, max_steps=MAX_STEPS))
