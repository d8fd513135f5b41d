"""Sentences, facts and tables of present/ as rich renderables."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.core.text import plain
from fsdp_profile.present.values import Column, Fact, Mark, Sentence, Table, Unit
from fsdp_profile.render.terminal.parts import Field, Grid, Name, facts, heading


def sentence_text(sentence: Sentence, *, style: str = "") -> Text:
    """A sentence; what carries it is bold."""
    text = Text(style=style)
    for part in sentence.parts:
        text.append(plain(part.text), style="bold" if part.mark is Mark.STRONG else None)
    return text


def fact_lines(found: Iterable[Fact]) -> RenderableType:
    """Facts line by line."""
    return facts((fact.label, sentence_text(fact.value)) for fact in found)


def table_grid(table: Table, *, keep_together: Sequence[int] = ()) -> RenderableType | None:
    """A table that fits the terminal, under its heading; None without rows.

    Args:
        table: the first column is repeated where the table goes on below.
        keep_together: numbers of columns that stand side by side or not at all.
    """
    if not table.num_rows:
        return None
    first, *others = table.columns
    together = [table.columns[number] for number in keep_together]
    groups = [[_field(one) for one in together]] if together else []
    groups += [[_field(one)] for one in others if one not in together]
    grid = Grid(key=[_field(first)], groups=groups, num_totals=table.num_totals)
    return Group(heading(table.title, table.note), grid) if table.title else grid


def _field(column: Column) -> Field:
    texts = column.texts()
    cells = [Name(text, among=texts) for text in texts] if column.unit is Unit.NAME else texts
    return Field(header=column.label, cells=cells, justify="right" if column.is_number else "left")
