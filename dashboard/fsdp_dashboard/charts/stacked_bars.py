"""One category of horizontal stacked bars, as the pages that compare peaks draw them."""

from collections.abc import Sequence
from typing import Final

from fsdp_dashboard.charts.labels import ByteScale, Figure, share_text, short_text
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text

_TEXT_RATIO: Final = 0.13
"""A part of the longest bar at least this long has room for its percentage."""
_AROUND: Final = 0.07
"""How far the device's line reaches over a bar: not into the words above it."""


def category_bars(
    category: Category, *, titles: Sequence[str], sizes: Sequence[int], totals: Sequence[int], scale: ByteScale
) -> Figure:
    """The category's part of every bar: `sizes` of `totals`, in bytes; the first bar has place 0."""
    shares = [share_text(size, total) for size, total in zip(sizes, totals, strict=True)]
    enough = _TEXT_RATIO * max(totals, default=1)
    return {
        "type": "bar",
        "orientation": "h",
        "x": scale.of(list(sizes)),
        "y": list(range(len(sizes))),
        "name": category.label,
        "marker": {"color": category.colour, "line": {"width": 0}},
        "text": [share if size >= enough else "" for size, share in zip(sizes, shares, strict=True)],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "customdata": [
            (short_text(title), bytes_text(size), share)
            for title, size, share in zip(titles, sizes, shares, strict=True)
        ],
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>{category.label} %{{customdata[1]}}<br>"
        "%{customdata[2]} of its peak<extra></extra>",
    }


def capacity_lines(x: float, num_bars: int, *, half: float) -> list[Figure]:
    """The device's memory as a line across each bar, `half` of one high; the last goes on to its label below."""
    dashes = {"width": 2, "dash": "dash", "color": NEUTRAL}
    return [
        {
            "type": "line",
            "x0": x,
            "x1": x,
            "y0": row - half - _AROUND,
            "y1": row + half + (_AROUND if row < num_bars - 1 else 0.4 - half),
            "line": dashes,
        }
        for row in range(num_bars)
    ]
