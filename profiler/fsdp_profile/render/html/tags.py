"""The tags of the report. Text is escaped here, and nowhere else."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.text import plain

_BAR_PX: Final = 900
_BAR_HEIGHT: Final = 30


def esc(text: object) -> str:
    r"""Text of a run as text of a page: no tag, and control characters spelled out.

    >>> esc("<img src=x>\u202e")
    '&lt;img src=x&gt;\\u202e'
    """
    return escape(plain(str(text)), quote=True)


def paragraph(text: object, *, css: str = "") -> str:
    """A paragraph of text."""
    return f'<p class="{css}">{esc(text)}</p>' if css else f"<p>{esc(text)}</p>"


def heading(level: int, text: object, *, anchor: str = "") -> str:
    """A heading; `anchor` is ours, never a name."""
    return f'<h{level} id="{anchor}">{esc(text)}</h{level}>' if anchor else f"<h{level}>{esc(text)}</h{level}>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, names: int = 1) -> str:
    """A table of text: the first `names` columns are names, the others numbers. '' without rows."""
    body = [
        "<tr>"
        + "".join(f'<td class="{"name" if i < names else "n"}">{esc(v)}</td>' for i, v in enumerate(row))
        + "</tr>"
        for row in rows
    ]
    if not body:
        return ""
    head = "".join(f'<th class="{"" if i < names else "n"}">{esc(text)}</th>' for i, text in enumerate(header))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Words and what they are; '' without any."""
    rows = "".join(f"<dt>{esc(word)}</dt><dd>{esc(value)}</dd>" for word, value in pairs)
    return f"<dl>{rows}</dl>" if rows else ""


def bullets(texts: Iterable[object], *, css: str = "") -> str:
    """A list; '' without any."""
    items = "".join(f"<li>{esc(text)}</li>" for text in texts)
    return f'<ul class="{css}">{items}</ul>' if items else ""


def bar(sizes: dict[Category, int], *, top_bytes: int, label: str) -> str:
    """One stacked bar; `top_bytes` fill the width. Colours are attributes: the page allows no inline styles."""
    parts, x = [], 0.0
    for category in STACK_ORDER:
        width = sizes.get(category, 0) / max(top_bytes, 1) * _BAR_PX
        if width:
            parts.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="{_BAR_HEIGHT}" fill="{category.colour}"/>')
            x += width
    return (
        f'<svg viewBox="0 0 {_BAR_PX} {_BAR_HEIGHT}" width="{_BAR_PX}" height="{_BAR_HEIGHT}" role="img" '
        f'preserveAspectRatio="none"><title>{esc(label)}</title>{"".join(parts)}</svg>'
    )


def legend(categories: Iterable[Category]) -> str:
    """The colours of some categories."""
    shown = set(categories)
    items = [f"<span>{swatch(category)}{category.label}</span>" for category in STACK_ORDER if category in shown]
    return f'<div class="legend">{"".join(items)}</div>'


def swatch(category: Category) -> str:
    """A square of the category's colour."""
    return f'<svg width="11" height="11"><rect width="11" height="11" fill="{category.colour}"/></svg>'
