"""Colours of the pages: the categories' own, and of what is no category those of a category that is not near it."""

from typing import Final

from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, SpanKind

NEUTRAL: Final = "#808a94"
"""Lines and marks that belong to no category; readable on white and on a dark page."""

COLLECTIVE_COLOURS: Final[dict[CollectiveKind, str]] = {
    CollectiveKind.ALL_GATHER: Category.ALL_GATHER.colour,
    CollectiveKind.REDUCE_SCATTER: Category.GRAD.colour,
    CollectiveKind.ALL_REDUCE: Category.UNSHARDED_GRAD.colour,
    CollectiveKind.BROADCAST: Category.PARAM.colour,
    CollectiveKind.ALL_TO_ALL: Category.ACTIVATION.colour,
    CollectiveKind.REDUCE: Category.BUFFER.colour,
    CollectiveKind.SEND_RECV: Category.OPTIMIZER_TEMPORARY.colour,
    CollectiveKind.BARRIER: Category.TEMPORARY.colour,
    CollectiveKind.OTHER: Category.UNKNOWN.colour,
}
"""One colour per kind, on every page; taken from the categories, so no two look alike."""

SPAN_COLOURS: Final[dict[SpanKind, str]] = {
    SpanKind.UNSHARDED: Category.UNSHARDED_PARAM.colour,
    SpanKind.FORWARD: Category.PARAM.colour,
    SpanKind.BACKWARD: Category.ACTIVATION.colour,
    SpanKind.ALL_GATHER: COLLECTIVE_COLOURS[CollectiveKind.ALL_GATHER],
    SpanKind.COPY_OUT: COLLECTIVE_COLOURS[CollectiveKind.ALL_GATHER],
    SpanKind.REDUCE: COLLECTIVE_COLOURS[CollectiveKind.REDUCE_SCATTER],
    SpanKind.REDUCE_SCATTER: COLLECTIVE_COLOURS[CollectiveKind.REDUCE_SCATTER],
    SpanKind.ALL_REDUCE: COLLECTIVE_COLOURS[CollectiveKind.ALL_REDUCE],
    SpanKind.RESHARD: NEUTRAL,
}

LEVELS: Final = ("active", "reserved", "device used")
"""Lines over the stack, lowest first."""

LEVEL_COLOURS: Final[dict[str, str]] = {
    "active": Category.OPTIMIZER_STATE.colour,
    "reserved": NEUTRAL,
    "device used": Category.BUFFER.colour,
}

WATERFALL_COLOURS: Final[dict[str, str]] = {
    "allocated": Category.PARAM.colour,
    "freed but held by a stream": LEVEL_COLOURS["active"],
    "cached": Category.TEMPORARY.colour,
    "outside PyTorch": LEVEL_COLOURS["device used"],
    "outside PyTorch, this process": LEVEL_COLOURS["device used"],
    "outside PyTorch, other processes": Category.INPUT.colour,
    "device used": LEVEL_COLOURS["device used"],
}
"""Parts of the device waterfall; what ends at a level has the level's colour."""

TIME_COLOURS: Final[dict[str, str]] = {
    "compute": Category.PARAM.colour,
    "exposed": NEUTRAL,
    "copies": Category.INPUT.colour,
    "idle": "rgba(128,138,148,0.22)",
}
"""Parts of a step's time; the exposed one is hatched, as in every figure of collectives."""
