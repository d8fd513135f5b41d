"""What one rank would need under each strategy: a bar of categories each, against the device's memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsdp_dashboard.charts.labels import (
    ByteScale,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    note,
    plot_text,
    short_text,
)
from fsdp_dashboard.charts.stacked_bars import capacity_lines, category_bars
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text

_BAR_PX: Final = 62
_BAR_GAP: Final = 0.55
_FURNITURE_PX: Final = 56
_DRAWN_RATIO: Final = 4.0
"""The device's memory is drawn when it is at most this many times the highest bar, else only named in text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanBar:
    """One strategy."""

    title: str
    """Its name and its world size."""
    by_category: Mapping[Category, int]
    is_whole: bool
    """False: parts of it are not known."""
    remark: str = ""
    """Whether it fits, whether it was measured."""

    @property
    def size_bytes(self) -> int:
        """The known part of the total."""
        return sum(self.by_category.values())


def whatif_figure(bars: list[PlanBar], *, capacity_bytes: int | None, capacity_title: str = "") -> Figure:
    """Stacked categories of each strategy, the first on top, and the device's memory as a line."""
    highest = max((bar.size_bytes for bar in bars), default=1)
    draws_capacity = capacity_bytes is not None and capacity_bytes <= _DRAWN_RATIO * highest
    end = max(highest, capacity_bytes) if draws_capacity and capacity_bytes else highest
    scale = byte_scale(end)
    layout = base_layout(
        height=_BAR_PX * len(bars) + _FURNITURE_PX,
        barmode="stack",
        bargap=_BAR_GAP,
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 8, "b": 8},
        xaxis=byte_axis(scale, end=max(float(scale.of(end)) * 1.03, 1.0)),
        yaxis={"range": [len(bars) - 0.6, -0.75], "visible": False, "fixedrange": True},
        annotations=[_title(bar, row) for row, bar in enumerate(bars)],
        shapes=[],
    )
    if draws_capacity and capacity_bytes:
        _draw_capacity(layout, capacity_bytes, capacity_title, scale, num_bars=len(bars))
    categories = [c for c in STACK_ORDER if any(bar.by_category.get(c) for bar in bars)]
    return {"data": [_bars_of(c, bars, scale) for c in categories], "layout": layout}


def _draw_capacity(layout: Figure, capacity_bytes: int, title: str, scale: ByteScale, *, num_bars: int) -> None:
    x = float(scale.of(capacity_bytes))
    layout["shapes"] += capacity_lines(x, num_bars, half=(1 - _BAR_GAP) / 2)
    text = f"{plot_text(title)} {bytes_text(capacity_bytes)}"
    side = "right" if x > layout["xaxis"]["range"][1] / 2 else "left"
    label = note(text, x=x, y=0, yref="paper", xanchor=side, yanchor="bottom", font={"size": 11})
    layout["annotations"].append(label)


def _bars_of(category: Category, bars: list[PlanBar], scale: ByteScale) -> Figure:
    return category_bars(
        category,
        titles=[bar.title for bar in bars],
        sizes=[bar.by_category.get(category, 0) for bar in bars],
        totals=[bar.size_bytes for bar in bars],
        scale=scale,
    )


def _title(bar: PlanBar, row: int) -> Figure:
    more = "" if bar.is_whole else "more than "
    remark = f" · {plot_text(bar.remark)}" if bar.remark else ""
    text = f"<b>{short_text(bar.title)} {more}{bytes_text(bar.size_bytes)}</b>{remark}"
    return note(text, x=0, y=row - 0.22, xref="x", yref="y", xanchor="left", yanchor="bottom", yshift=1)
