"""What a redaction removes from a run."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from fsdp_profile.present.redaction import KEPT, NOTHING, Removal, removals_table
from fsdp_profile.render.terminal.parts import heading, note
from fsdp_profile.render.terminal.values import grid_of


def redaction_report(removals: Sequence[Removal], *, written: bool) -> RenderableType:
    """A line per kind; examples only in a preview."""
    found = removals_table(removals, written=written)
    title = heading(found.title, found.note)
    return Group(title, grid_of(found), note(KEPT)) if removals else Group(title, note(NOTHING))
