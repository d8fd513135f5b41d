"""Colours of the pages: the categories' own, and of what is no category those of a category that is not near it."""

from typing import Final

from fsdp_profile.core.categories import COLOURS, STACK_ORDER
from fsdp_profile.core.schema import Category, CollectiveKind, SpanKind

__all__ = ["COLLECTIVE_COLOURS", "COLOURS", "LEVELS", "LEVEL_COLOURS", "NEUTRAL", "SPAN_COLOURS", "STACK_ORDER",
           "TIME_COLOURS", "WATERFALL_COLOURS"]  # fmt: skip

NEUTRAL: Final = "#808a94"
"""Lines and marks that belong to no category; readable on white and on a dark page."""

COLLECTIVE_COLOURS: Final[dict[CollectiveKind, str]] = {
    CollectiveKind.ALL_GATHER: COLOURS[Category.ALL_GATHER],
    CollectiveKind.REDUCE_SCATTER: COLOURS[Category.SHARDED_GRAD],
    CollectiveKind.ALL_REDUCE: COLOURS[Category.UNSHARDED_GRAD],
    CollectiveKind.BROADCAST: COLOURS[Category.SHARDED_PARAM],
    CollectiveKind.ALL_TO_ALL: COLOURS[Category.ACTIVATION],
    CollectiveKind.REDUCE: COLOURS[Category.BUFFER],
    CollectiveKind.SEND_RECV: COLOURS[Category.OPTIMIZER_TEMPORARY],
    CollectiveKind.BARRIER: COLOURS[Category.TEMPORARY],
    CollectiveKind.OTHER: COLOURS[Category.UNKNOWN],
}
"""One colour per kind, on every page; taken from the categories, so no two look alike."""

SPAN_COLOURS: Final[dict[SpanKind, str]] = {
    SpanKind.UNSHARDED: COLOURS[Category.UNSHARDED_PARAM],
    SpanKind.FORWARD: COLOURS[Category.SHARDED_PARAM],
    SpanKind.BACKWARD: COLOURS[Category.ACTIVATION],
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
    "active": COLOURS[Category.OPTIMIZER_STATE],
    "reserved": NEUTRAL,
    "device used": COLOURS[Category.BUFFER],
}

WATERFALL_COLOURS: Final[dict[str, str]] = {
    "allocated": COLOURS[Category.SHARDED_PARAM],
    "held by a stream": LEVEL_COLOURS["active"],
    "cached": COLOURS[Category.TEMPORARY],
    "outside": LEVEL_COLOURS["device used"],
    "outside: this process": LEVEL_COLOURS["device used"],
    "outside: other processes": COLOURS[Category.INPUT],
    "device used": LEVEL_COLOURS["device used"],
}
"""Parts of the device waterfall; what ends at a level has the level's colour."""

TIME_COLOURS: Final[dict[str, str]] = {
    "compute": COLOURS[Category.SHARDED_PARAM],
    "exposed": NEUTRAL,
    "copies": COLOURS[Category.INPUT],
    "idle": "rgba(128,138,148,0.22)",
}
"""Parts of a step's time; the exposed one is hatched, as in every figure of collectives."""
