"""Sentences, facts and tables of present/ as rich renderables."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.core.categories import Category
from fsdp_profile.core.text import plain
from fsdp_profile.present.values import Column, Fact, Mark, Sentence, Table, Tone, Unit
from fsdp_profile.render.terminal.palette import FAILURE, WARNING
from fsdp_profile.render.terminal.parts import Cell, Field, Grid, Name, bulleted, facts, heading, shortened
from fsdp_profile.render.terminal.stack import Swatch

_TONES = {Tone.PLAIN: "", Tone.WARNING: WARNING, Tone.FAILURE: FAILURE}
HEADER_CELLS = 14
"""A name from a run above a column of numbers is shortened to this."""


def sentence_text(sentence: Sentence, *, style: str = "") -> Text:
    """A sentence; what carries it is bold."""
    text = Text(style=style)
    for part in sentence.parts:
        text.append(plain(part.text), style="bold" if part.mark is Mark.STRONG else None)
    return text


def fact_lines(found: Iterable[Fact]) -> RenderableType:
    """Facts line by line."""
    return facts((fact.label, sentence_text(fact.value)) for fact in found)


def sentence_lines(found: Iterable[Sentence], *, style: str = "") -> RenderableType:
    """Sentences as a list."""
    return bulleted((sentence_text(sentence, style=style) for sentence in found), style=style)


def table_grid(table: Table, *, keep_together: Sequence[int] = (), drawn: Sequence[Cell] = ()) -> RenderableType | None:
    """A table that fits the terminal, under its heading; None without rows.

    Args:
        table: its first columns are repeated where the table goes on below.
        keep_together: numbers of columns that stand side by side or not at all.
        drawn: a bar for each row, in the last column of the first group.
    """
    if not table.num_rows:
        return None
    grid = grid_of(table, keep_together=keep_together, drawn=drawn)
    return Group(heading(table.title, table.note), grid) if table.title else grid


def grid_of(table: Table, *, keep_together: Sequence[int] = (), drawn: Sequence[Cell] = ()) -> Grid:
    """A table that fits the terminal, without its heading."""
    labels = [plain(one.label) for one in table.columns if one.is_named]
    keys, others = table.columns[: table.num_keys], table.columns[table.num_keys :]
    together = [table.columns[number] for number in keep_together]
    groups: list[list[Field]] = [[field for one in together for field in _fields(one, labels)]] if together else []
    for one in others:
        if one in together:
            continue
        if one.follows and groups:
            groups[-1] += _fields(one, labels)
        else:
            groups.append(_fields(one, labels))
    if drawn:
        bars = Field(header="", cells=drawn, justify="left")
        groups[:1] = [[*groups[0], bars]] if groups else [[bars]]
    return Grid(
        key=[field for one in keys for field in _fields(one, labels)], groups=groups, num_totals=table.num_totals
    )


def _fields(column: Column, labels: Sequence[str]) -> list[Field]:
    texts = column.texts()
    header = shortened(plain(column.label), cells=HEADER_CELLS, among=labels) if column.is_named else column.label
    cells: list[Cell] = [Name(text, among=texts) for text in texts] if column.unit is Unit.NAME else list(texts)
    if column.tones:
        cells = [Text(plain(text), style=_TONES[tone]) for text, tone in zip(texts, column.tones, strict=True)]
    field = Field(header=header, cells=cells, justify="right" if column.is_number else "left")
    if column.unit is not Unit.CATEGORY:
        return [field]
    swatches: list[Cell] = [Swatch(value) if isinstance(value, Category) else "" for value in column.values]
    return [Field(header="", cells=swatches), field]
