"""Parts every report is made of: names from a run as harmless text, and grids of numbers that fit the width."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, Protocol

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.palette import QUIET

MIN_NAME_CELLS: Final = 16
"""A name may be shortened to this, no further."""
GAP_CELLS: Final = 2
"""Between two columns of a grid."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name from a run, in one line; where it does not fit, an ellipsis stands for its middle."""

    text: str
    among: Sequence[str] = ()
    """Names of its column that it must not read like when shortened."""

    @property
    def min_cells(self) -> int:
        """Width below which it would say too little."""
        return min(cell_len(plain(self.text)), MIN_NAME_CELLS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gap = "..." if options.ascii_only else "…"
        among = [plain(name) for name in self.among]
        yield Text(shortened(plain(self.text), cells=options.max_width, gap=gap, among=among), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.min_cells, cell_len(plain(self.text))).with_maximum(options.max_width)


def shortened(text: str, *, cells: int, gap: str = "…", among: Sequence[str] = ()) -> str:
    """The text itself, or its head and tail around an ellipsis.

    Args:
        text: what to shorten.
        cells: the width it may take.
        gap: stands for what is left out.
        among: names shown beside it: the gap is put where it leaves all of them different, if there is such a place.

    >>> shortened("layers.12.attention.qkv.weight", cells=16)
    'layers.1….weight'
    >>> shortened("gpt-fsdp2-2ranks", cells=14, among=["gpt-fsdp1-2ranks", "gpt-fsdp2-2ranks"])
    '…-fsdp2-2ranks'
    """
    tail = _tail_cells(frozenset((text, *among)), cells=cells, gap=gap)
    return _cut(text, cells=cells, tail=tail, gap=gap)


@lru_cache(maxsize=64)
def _tail_cells(names: frozenset[str], *, cells: int, gap: str) -> int:
    """How much of the end to keep so that every name stays its own; half, the readable place, where it may be."""
    room: int = max(cells - cell_len(gap), 0)
    tails: list[int] = [room // 2, room, *range(room)] if len(names) > 1 else []
    for tail in tails:
        if len({_cut(name, cells=cells, tail=tail, gap=gap) for name in names}) == len(names):
            return tail
    return room // 2


def _cut(text: str, *, cells: int, tail: int, gap: str) -> str:
    if cell_len(text) <= cells:
        return text
    head = max(cells - cell_len(gap), 0) - tail
    return set_cell_size(text, head) + gap + set_cell_size(text[::-1], tail)[::-1]


class Drawn(Protocol):
    """A cell that fits itself into the width it gets, down to its smallest."""

    @property
    def min_cells(self) -> int:
        """Its smallest width."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich wants it."""


Cell = str | Text | Drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One column of a grid. Text is shown whole; a drawn cell gives way when there is no room."""

    header: str
    """May break between words."""
    cells: Sequence[Cell]
    justify: Literal["left", "right"] = "right"

    @property
    def min_cells(self) -> int:
        """Width below which something would be cut."""
        return max([*map(cell_len, self.header.split()), *map(_min_cells, self.cells)], default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A table that fits: what is too wide for one goes on in a second one under the same keys."""

    key: Sequence[Field]
    groups: Sequence[Sequence[Field]]
    """Fields that stay together."""
    num_totals: int = 0
    """Rows at the end that stand under a rule."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, fields in enumerate(self._pages(options.max_width)):
            if number:
                yield Text()
            yield self._table(fields, options.max_width)

    def _pages(self, width: int) -> list[list[Field]]:
        pages, left = [list(self.key)], width - _cells(self.key)
        for group in self.groups:
            need = _cells(group) + GAP_CELLS
            if need > left and len(pages[-1]) > len(self.key):
                pages.append(list(self.key))
                left = width - _cells(self.key)
            pages[-1] += group
            left -= need
        return pages

    def _table(self, fields: Sequence[Field], width: int) -> Table:
        whole = [max(cell_len(field.header), field.min_cells) for field in fields]
        has_room = sum(whole) + GAP_CELLS * (len(fields) - 1) <= width
        table = Table(box=box.HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for field in fields:
            header = field.header if has_room else textwrap.fill(field.header, max(field.min_cells, 1))
            is_whole = all(isinstance(cell, str | Text) for cell in field.cells)
            table.add_column(Text(header), justify=field.justify, no_wrap=is_whole)
        rows = list(zip(*(map(_renderable, field.cells) for field in fields), strict=True))
        for number, row in enumerate(rows, start=1):
            table.add_row(*row, end_section=number == len(rows) - self.num_totals)
        return table


def heading(title: str, note: str = "") -> Text:
    """The title of a section, and in which sense its numbers are meant."""
    text = Text(plain(title), style="bold")
    return text.append(f"  {plain(note)}", style="not bold dim") if note else text


def facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """A word and what it is, line by line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for word, value in rows:
        table.add_row(Text(plain(word)), _renderable(value))
    return table


def note(text: str) -> Text:
    """A remark under a table."""
    return Text(plain(text), style=QUIET)


def lines(texts: Iterable[str], *, style: str = "") -> RenderableType:
    """Sentences, one to a line; what is longer than the line goes on indented."""
    return bulleted((Text(plain(text), style=style) for text in texts), style=style)


def bulleted(texts: Iterable[Text], *, style: str = "") -> RenderableType:
    """Texts with a dash before each; what is longer than the line goes on indented."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for text in texts:
        text.overflow = "fold"
        table.add_row(Text("-", style=style), text)
    return table


def sections(parts: Iterable[RenderableType | None]) -> Group:
    """The parts there are, an empty line between two."""
    found = [part for part in parts if part is not None]
    return Group(*(line for number, part in enumerate(found) for line in ([Text(), part] if number else [part])))


def _cells(fields: Sequence[Field]) -> int:
    return sum(field.min_cells for field in fields) + GAP_CELLS * max(len(fields) - 1, 0)


def _min_cells(cell: Cell) -> int:
    if isinstance(cell, Text):
        return cell.cell_len
    return cell_len(plain(cell)) if isinstance(cell, str) else cell.min_cells


def _renderable(cell: Cell) -> RenderableType:
    return Text(plain(cell)) if isinstance(cell, str) else cell
