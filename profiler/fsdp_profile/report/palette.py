"""One colour and one letter per category, the same in every report. The colours are the dashboard's.

The letter tells categories apart where there is no colour: piped, NO_COLOR, a screenshot in grey.
"""

from typing import Final

from fsdp_profile.schema import Category

COLOURS: Final[dict[Category, str]] = {
    Category.SHARDED_PARAM: "#4e6be8",
    Category.UNSHARDED_PARAM: "#86dbf5",
    Category.SHARDED_GRAD: "#0c804d",
    Category.UNSHARDED_GRAD: "#70c97c",
    Category.OPTIMIZER_STATE: "#7a64b0",
    Category.ACTIVATION: "#e69126",
    Category.ALL_GATHER: "#d13b2b",
    Category.REDUCE_SCATTER: "#d1737c",
    Category.BUCKET: "#773f08",
    Category.BUFFER: "#46a0a0",
    Category.INPUT: "#fbce4f",
    Category.OPTIMIZER_TEMPORARY: "#b58ce0",
    Category.TEMPORARY: "#c1bdba",
    Category.UNKNOWN: "#544e4d",
}

STACK_ORDER: Final = (
    Category.SHARDED_PARAM,
    Category.BUFFER,
    Category.OPTIMIZER_STATE,
    Category.SHARDED_GRAD,
    Category.INPUT,
    Category.ACTIVATION,
    Category.UNSHARDED_PARAM,
    Category.UNSHARDED_GRAD,
    Category.ALL_GATHER,
    Category.REDUCE_SCATTER,
    Category.BUCKET,
    Category.OPTIMIZER_TEMPORARY,
    Category.TEMPORARY,
    Category.UNKNOWN,
)
"""Left to right: what stays comes first."""

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
