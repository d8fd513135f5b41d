"""Sentences of the Runs page, as Markdown. As in text.py."""

from collections.abc import Sequence
from typing import Final

from fsdp_dashboard.text import code

NONE_FITS: Final = "No run fits these filters. Clear one of them above."
HOW_TO_CHOOSE: Final = "Tick rows to show, compare or tag those runs; or choose them in the sidebar."
BASELINE: Final = (
    "Saved: share of the peak of the newest complete DDP run with the same model, ranks, device, torch and arguments; "
    "not known where there is none."
)
TAGS: Final = "Separated by commas. They are kept in tags.json beside each run; what was recorded is not changed."
_NAMED: Final = 6


def how_many(shown: int, found: int) -> str:
    """How many runs fit the filters."""
    runs = "1 run" if found == 1 else f"{found:,} runs"
    return runs if shown == found else f"{shown:,} of {runs}"


def read_rest(unread: int) -> str:
    """The button for what was left out to be quick."""
    return f"Read {'the run that is' if unread == 1 else f'{unread:,} runs that are'} not read yet"


def show(labels: Sequence[str]) -> str:
    """The button that makes the ticked runs the shown ones."""
    return "Show the ticked run" if len(labels) == 1 else f"Show the {len(labels):,} ticked runs"


def shown(labels: Sequence[str]) -> str:
    """Which runs every page shows now."""
    named = ", ".join(code(label) for label in labels[:_NAMED])
    more = f" and {len(labels) - _NAMED:,} more" if len(labels) > _NAMED else ""
    return f"Every page shows {named}{more}:"


def tags_of(number: int) -> str:
    """The label of the input."""
    return "Tags of this run" if number == 1 else f"Tags of these {number:,} runs"
