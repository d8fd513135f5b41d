"""What every chart in SVG has: its frame and title, a legend, an axis of time."""

from collections.abc import Sequence
from html import escape
from typing import Final

from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import ns_text
from fsdp_profile.core.text import plain

WIDTH: Final = 960
RIGHT: Final = 12
FONT: Final = 'font-family="system-ui,sans-serif" font-size="12"'
TICKS: Final = 5
LEGEND_PX: Final = 18
_PER_ROW: Final = 5
"""Categories side by side: the longest label fits into a fifth of the width."""


def document(title: str, body: str, *, height: int) -> str:
    """The chart; its title is text, whatever a run is called."""
    name = escape(plain(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{name}</title><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="12" y="22" {FONT} font-weight="bold">{name}</text>{body}</svg>\n'
    )


def legend(used: Sequence[Category]) -> str:
    """The colours of some categories, under the title."""
    parts = []
    for number, category in enumerate(used):
        x, y = 12 + (number % _PER_ROW) * 186, 44 + (number // _PER_ROW) * LEGEND_PX
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{category.colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}" {FONT}>{category.label}</text>')
    return "".join(parts)


def legend_height(used: Sequence[Category]) -> int:
    """Height of the legend in pixels."""
    return -(-len(used) // _PER_ROW) * LEGEND_PX


def time_axis(span_ns: int, *, left: int, floor: int) -> str:
    """Times from the left edge on, under the chart."""
    parts = []
    for tick in range(TICKS + 1):
        x = left + (WIDTH - RIGHT - left) * tick / TICKS
        anchor = "end" if tick == TICKS else "middle"
        text = ns_text(span_ns * tick // TICKS)
        parts.append(f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="{anchor}" {FONT}>{text}</text>')
    return "".join(parts)
