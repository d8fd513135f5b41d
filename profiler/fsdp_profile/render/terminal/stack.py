"""A peak as a horizontal stacked bar, and the swatch that stands for a category.

A part smaller than half a cell is not drawn; the table of categories beside the bar always names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.render.terminal.palette import paint

MIN_BAR_CELLS: Final = 20
MAX_BAR_CELLS: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class StackedBar:
    """Bytes by category as one bar, as long as its share of `scale_bytes`."""

    by_category: Mapping[Category, int]
    scale_bytes: int
    """Bytes of the longest bar it is shown beside."""

    @property
    def min_cells(self) -> int:
        """Width below which it would say too little."""
        return MIN_BAR_CELLS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        has_colour = console.color_system is not None and not console.no_color
        width = min(options.max_width, MAX_BAR_CELLS)
        drawn = [category for category in STACK_ORDER if category in self.by_category]
        shares = [self.by_category[category] / self.scale_bytes for category in drawn]
        bar = Text(no_wrap=True)
        for category, cells in zip(drawn, split_cells(shares, cells=width), strict=True):
            if cells and has_colour:
                bar.append(category.letter + " " * (cells - 1), style=paint(category))
            else:
                bar.append(category.letter * cells)
        yield bar

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(MIN_BAR_CELLS, options.max_width), min(MAX_BAR_CELLS, options.max_width))


@dataclass(frozen=True, slots=True)
class Swatch:
    """A category's letter on its colour."""

    category: Category

    @property
    def min_cells(self) -> int:
        """One letter."""
        return 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.category.letter, style=paint(self.category))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, 1)


def split_cells(shares: Sequence[float], *, cells: int) -> list[int]:
    """Whole cells for shares of a bar: their sum is right to a cell, the largest remainders round up.

    >>> split_cells([0.5, 0.26, 0.24], cells=10)
    [5, 3, 2]
    """
    exact = [share * cells for share in shares]
    found = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: found[i] - exact[i])
    for i in by_remainder[: round(sum(exact)) - sum(found)]:
        found[i] += 1
    return found
