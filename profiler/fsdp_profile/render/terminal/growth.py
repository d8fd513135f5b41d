"""What grows step over step, where it comes from, and units that something keeps unsharded."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.render.terminal.memory import unit_cell
from fsdp_profile.render.terminal.palette import WARNING
from fsdp_profile.render.terminal.parts import Field, Grid, Name, heading, lines, sections

MAX_GROWTHS: Final = 4


def growth_report(
    found: Sequence[Growth], kept: Sequence[KeptUnsharded], *, unit_names: Mapping[int, str]
) -> RenderableType | None:
    """Categories that grow with their call sites, and units kept unsharded; None where all is steady."""
    parts: list[RenderableType | None] = [_growth(one, unit_names) for one in found[:MAX_GROWTHS]]
    parts.append(_kept(kept) if kept else None)
    return sections(parts) if any(part is not None for part in parts) else None


def _growth(found: Growth, unit_names: Mapping[int, str]) -> RenderableType:
    first, last = found.steps[0], found.steps[-1]
    title = Text(f"{found.category} grows by {bytes_text(found.bytes_per_step)} a step", style=WARNING)
    ends = f"{bytes_text(found.first_bytes)} after step {first}, {bytes_text(found.last_bytes)} after step {last}"
    if not found.sites:
        return Group(title, Text(ends))
    head = Group(title, Text(f"{ends}; these blocks outlived their step:"))
    grid = Grid(
        key=[Field(header="a step", cells=[bytes_text(site.bytes_per_step) for site in found.sites])],
        groups=[
            [
                Field(header="blocks", cells=[f"{site.num_blocks:,}" for site in found.sites]),
                Field(header="phase", cells=[site.phase for site in found.sites], justify="left"),
                Field(
                    header="unit", cells=[unit_cell(unit_names.get(site.unit)) for site in found.sites], justify="left"
                ),
                Field(header="operator", cells=[Name(site.operator or "-") for site in found.sites], justify="left"),
            ]
        ],
    )
    return Group(head, grid)


def _kept(kept: Sequence[KeptUnsharded]) -> RenderableType:
    said = (
        f"{unit_text(k.name)}: {bytes_text(k.size_bytes)} of its gathered parameters are still in memory at the end of "
        f"step {k.step}, after its reshard; something refers to them"
        for k in kept
    )
    return Group(heading("Kept unsharded"), lines(said, style=WARNING))
