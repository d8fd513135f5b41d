"""One colour per category, the same in the terminal, on every page and in every export; and the order of a stack.

Found by search: the least distance of any two (OKLab, seen with normal, protanope, deuteranope and tritanope
eyes) is as large as 14 colours in their families allow, and each stands out on white and on a dark page.
Blue is parameters, green gradients, violet the optimizer, orange activations, red communication, grey the rest.
"""

from typing import Final

from fsdp_profile.core.schema import Category

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
"""Bottom to top: what stays comes first, so that its bands are flat."""
