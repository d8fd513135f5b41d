"""Sentences, facts and tables of present/ as tags of the report."""

from collections.abc import Iterable

from fsdp_profile.present.values import Fact, Mark, Sentence, Table
from fsdp_profile.render.html.tags import esc, heading, paragraph
from fsdp_profile.render.html.tags import table as table_tag

MAX_ROWS = 400
"""Most rows of a table; a line under the table states how many are left out."""
_TAGS = {Mark.NAME: "code", Mark.STRONG: "b"}


def sentence_html(sentence: Sentence) -> str:
    """A sentence inside a paragraph or a cell."""
    return "".join(
        f"<{_TAGS[part.mark]}>{esc(part.text)}</{_TAGS[part.mark]}>" if part.mark in _TAGS else esc(part.text)
        for part in sentence.parts
    )


def sentence_paragraph(sentence: Sentence, *, css: str = "") -> str:
    """A sentence as a paragraph."""
    return f'<p class="{css}">{sentence_html(sentence)}</p>' if css else f"<p>{sentence_html(sentence)}</p>"


def fact_list(found: Iterable[Fact]) -> str:
    """Facts as a list of definitions; '' without any."""
    rows = "".join(f"<dt>{esc(fact.label)}</dt><dd>{sentence_html(fact.value)}</dd>" for fact in found)
    return f"<dl>{rows}</dl>" if rows else ""


def table_html(table: Table, *, level: int = 3) -> str:
    """A table under its heading and over its note; '' without rows."""
    if not table.num_rows:
        return ""
    names = next((i for i, column in enumerate(table.columns) if column.is_number), len(table.columns))
    rows = table.rows()
    parts = [heading(level, table.title)] if table.title else []
    parts.append(table_tag([column.label for column in table.columns], rows[:MAX_ROWS], names=names))
    if len(rows) > MAX_ROWS:
        parts.append(paragraph(f"and {len(rows) - MAX_ROWS:,} more", css="soft"))
    if table.note:
        parts.append(paragraph(table.note, css="soft"))
    return "".join(parts)
