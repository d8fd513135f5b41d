"""Styles of the terminal. Where there is no colour, the letter of a category tells it from the others."""

from typing import Final

from fsdp_profile.core.categories import Category

FAILURE: Final = "bold red"
WARNING: Final = "#c2620a"  # yellow cannot be read on a light terminal, this can on both
QUIET: Final = "dim"


def paint(category: Category) -> str:
    """The rich style of a category's cells: its letter stays readable on its colour."""
    colour = category.colour
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 128
    return f"{'#000000' if is_light else '#ffffff'} on {colour}"
