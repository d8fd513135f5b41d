"""What grows step over step, where it comes from, and units that a reference keeps unsharded."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded
from fsdp_profile.present import growth as present
from fsdp_profile.render.terminal.palette import WARNING
from fsdp_profile.render.terminal.parts import heading, note, sections
from fsdp_profile.render.terminal.values import grid_of, sentence_lines, sentence_text

MAX_GROWTHS: Final = 4


def growth_report(
    found: Sequence[Growth], kept: Sequence[KeptUnsharded], *, unit_names: Mapping[int, str]
) -> RenderableType | None:
    """Categories that grow with their call sites, and units kept unsharded; None where all is steady."""
    parts: list[RenderableType | None] = [_growth(one, unit_names) for one in found[:MAX_GROWTHS]]
    if kept:
        lines = sentence_lines(map(present.kept_unsharded, kept), style=WARNING)
        parts.append(Group(heading("Kept unsharded"), lines))
    return sections(parts) if parts else None


def _growth(found: Growth, unit_names: Mapping[int, str]) -> RenderableType:
    said = sentence_text(present.growth(found), style=WARNING)
    if not found.sites:
        return said
    sites = present.sites_table(found, unit_names)
    return Group(said, note(sites.note), grid_of(sites))
