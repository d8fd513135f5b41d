"""Markdown tables, and the escaping of names from a run."""

import re
from collections.abc import Sequence
from typing import Any

from fsdp_profile.core.text import plain


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of any values; text is escaped, numbers are right-aligned, None is an empty cell."""
    is_number = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]
    lines = [
        f"| {' | '.join(map(markdown_text, header))} |",
        f"|{'|'.join('---:' if n else '---' for n in is_number)}|",
    ]
    lines += [f"| {' | '.join('' if v is None else markdown_text(str(v)) for v in row)} |" for row in rows]
    return "\n".join(lines)


def markdown_text(text: str) -> str:
    r"""A name from a run as text in GitHub's Markdown: no mark-up, no tag, nobody mentioned.

    >>> markdown_text("<b>@me|[x](y)")
    '&lt;b&gt;&#64;me\\|\\[x\\]\\(y\\)'
    """
    escaped = _MARKDOWN.sub(r"\\\1", plain(text).replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;").replace("://", ":&#47;/")


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#!|~])")
