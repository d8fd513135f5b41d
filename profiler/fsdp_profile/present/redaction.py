"""What a redaction removes from a run."""

from collections.abc import Sequence
from typing import Final, Protocol

from fsdp_profile.present.values import Table, Unit, column, table

NOTHING: Final = "Nothing is removed: the run holds none of it."
KEPT: Final = "Kept: numbers, times, and the words of torch, of vendors and of this project."


class Removal(Protocol):
    """One kind of text that is removed: see export/redact."""

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


def removals_table(removals: Sequence[Removal], *, written: bool = False) -> Table:
    """A row per kind; examples only in a preview, which is not passed on."""
    columns = [
        column("kind", Unit.TEXT, [r.what for r in removals]),
        column("different", Unit.COUNT, [r.count for r in removals]),
    ]
    if not written:
        columns += [
            column("example", Unit.NAME, [r.example for r in removals], follows=True),
            column("becomes", Unit.NAME, [r.becomes or "(nothing)" for r in removals], follows=True),
        ]
    title = "Removed" if written else "Would be removed"
    return table(title, columns, note="" if written else "nothing was written")
