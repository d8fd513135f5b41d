"""Sentences, facts and tables of present/ as Markdown for GitHub."""

from fsdp_profile.present.values import Mark, Sentence, Table
from fsdp_profile.render.markdown.tags import markdown_table, markdown_text

MAX_ROWS = 50
"""Most rows of a table; a line under the table states how many are left out."""


def sentence_markdown(sentence: Sentence) -> str:
    """A sentence; what carries it is bold."""
    return "".join(
        f"**{markdown_text(part.text)}**" if part.mark is Mark.STRONG else markdown_text(part.text)
        for part in sentence.parts
    )


def table_markdown(table: Table, *, level: int = 2, max_rows: int | None = MAX_ROWS) -> list[str]:
    """Lines of a table under its heading; none without rows."""
    if not table.num_rows:
        return []
    rows = table.rows()
    lines = [f"{'#' * level} {markdown_text(table.title)}", ""] if table.title else []
    lines += [markdown_table([column.label for column in table.columns], rows[:max_rows]), ""]
    more = len(rows) - (len(rows) if max_rows is None else max_rows)
    lines += [f"and {more:,} more", ""] if more > 0 else []
    return [*lines, *([markdown_text(table.note), ""] if table.note else [])]
