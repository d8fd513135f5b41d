"""One letter per category beside its colour, and the styles of words.

The letter tells categories apart where there is no colour: piped, NO_COLOR, a screenshot in grey.
"""

from typing import Final

from fsdp_profile.core.categories import COLOURS, STACK_ORDER
from fsdp_profile.core.schema import Category

__all__ = ["COLOURS", "FAILURE", "MARKS", "QUIET", "STACK_ORDER", "WARNING", "paint"]

MARKS: Final[dict[Category, str]] = {
    Category.SHARDED_PARAM: "P",
    Category.UNSHARDED_PARAM: "U",
    Category.SHARDED_GRAD: "G",
    Category.UNSHARDED_GRAD: "g",
    Category.OPTIMIZER_STATE: "O",
    Category.ACTIVATION: "A",
    Category.ALL_GATHER: "L",
    Category.REDUCE_SCATTER: "R",
    Category.BUCKET: "B",
    Category.BUFFER: "F",
    Category.INPUT: "I",
    Category.OPTIMIZER_TEMPORARY: "o",
    Category.TEMPORARY: "t",
    Category.UNKNOWN: "?",
}

FAILURE: Final = "bold red"
WARNING: Final = "#c2620a"  # yellow cannot be read on a light terminal, this can on both
QUIET: Final = "dim"


def paint(category: Category) -> str:
    """The rich style of a category's cells: its letter stays readable on its colour."""
    colour = COLOURS[category]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 128
    return f"{'#000000' if is_light else '#ffffff'} on {colour}"
