"""The source lines that hold most at the peak: one stacked bar of categories per line."""

from collections.abc import Sequence
from typing import Final

from fsdp_dashboard.charts.labels import (
    MAX_NAME_CHARS,
    ByteScale,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    note,
    share_text,
    short_text,
)
from fsdp_profile.analysis.memory.call_sites import SourceLine
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present.call_sites import line_name

MAX_LINES: Final = 15
_ROW_PX: Final = 38
_FURNITURE_PX: Final = 50
_TITLE_CHARS: Final = 38
"""With its size before it, this fits on a phone."""


def source_figure(lines: Sequence[SourceLine], *, peak_bytes: int) -> Figure:
    """The first MAX_LINES lines, the first on top; shares are of the peak."""
    shown = list(lines[:MAX_LINES])
    highest = max((line.size_bytes for line in shown), default=0)
    scale = byte_scale(highest)
    categories = [c for c in STACK_ORDER if any(line.by_category.get(c) for line in shown)]
    layout = base_layout(
        height=_ROW_PX * len(shown) + _FURNITURE_PX,
        barmode="stack",
        bargap=0.68,
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 8, "b": 8},  # room for half of the first and the last tick
        xaxis=byte_axis(scale, end=max(float(scale.of(highest)) * 1.03, 1.0)),
        yaxis={"range": [len(shown) - 0.6, -0.8], "visible": False, "fixedrange": True},
        annotations=[_title(line, row) for row, line in enumerate(shown)],
    )
    return {"data": [_bars(category, shown, scale, peak_bytes) for category in categories], "layout": layout}


def _bars(category: Category, lines: list[SourceLine], scale: ByteScale, peak_bytes: int) -> Figure:
    sizes = [line.by_category.get(category, 0) for line in lines]
    return {
        "type": "bar",
        "orientation": "h",
        "x": scale.of(sizes),
        "y": list(range(len(lines))),
        "name": category.label,
        "marker": {"color": category.colour, "line": {"width": 0}},
        "customdata": [
            (short_text(line_name(line), max_chars=2 * MAX_NAME_CHARS), bytes_text(size), share_text(size, peak_bytes))
            for line, size in zip(lines, sizes, strict=True)
        ],
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>{category.label} %{{customdata[1]}}<br>"
        "%{customdata[2]} of the peak<extra></extra>",
    }


def _title(line: SourceLine, row: int) -> Figure:
    text = f"<b>{bytes_text(line.size_bytes)}</b> · {short_text(line_name(line), max_chars=_TITLE_CHARS)}"
    return note(text, x=0, y=row - 0.16, xref="x", yref="y", xanchor="left", yanchor="bottom", yshift=1)
