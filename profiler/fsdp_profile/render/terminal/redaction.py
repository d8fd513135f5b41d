"""What a redaction takes out, for the eyes of who redacts."""

from collections.abc import Sequence
from typing import Protocol

from rich.console import Group, RenderableType

from fsdp_profile.render.terminal.parts import Field, Grid, Name, heading, note


class Removal(Protocol):
    """One kind of thing that was taken out: see export/redact.py."""

    @property
    def what(self) -> str:
        """What it is."""

    @property
    def count(self) -> int:
        """Different texts."""

    @property
    def example(self) -> str:
        """One of them."""

    @property
    def becomes(self) -> str:
        """What stands for it."""


def redaction_report(removals: Sequence[Removal], *, written: bool) -> RenderableType:
    """A line per kind; examples only in a preview, which nobody else reads."""
    title = heading("Removed" if written else "Would be removed", "" if written else "nothing was written")
    if not removals:
        return Group(title, note("nothing: the run holds none of it"))
    fields = [Field(header="different", cells=[f"{r.count:,}" for r in removals])]
    if not written:
        fields += [
            Field(header="such as", cells=[Name(r.example) for r in removals], justify="left"),
            Field(header="becomes", cells=[Name(r.becomes or "(nothing)") for r in removals], justify="left"),
        ]
    grid = Grid(key=[Field(header="what", cells=[r.what for r in removals], justify="left")], groups=[fields])
    return Group(title, grid, note("Kept: numbers, times, and words of torch, of vendors and of this project."))
