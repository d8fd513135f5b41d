"""What the peak is made of: one bar per run, all on one scale of bytes."""

from dataclasses import dataclass
from typing import Final

from fsdp_dashboard.charts.labels import (
    MINUS,
    ByteScale,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    note,
    short_text,
)
from fsdp_dashboard.charts.stacked_bars import capacity_lines, category_bars
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text, ratio_text

_BAR_PX: Final = 74
_BAR_GAP: Final = 0.58
_FURNITURE_PX: Final = 50
_CAPACITY_RATIO: Final = 2.5
"""The device's size is drawn when it is at most this many times the highest peak, else only named in text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakBar:
    """One run's worst peak."""

    title: str
    """Name of the run, as it is."""
    strategy: str
    peak: Peak
    reduction_ratio: float | None = None
    """Against the baseline; None for the baseline itself and where there is none."""


def composition_figure(bars: list[PeakBar], *, device_total_bytes: int | None = None) -> Figure:
    """Stacked categories of each run's peak, first run on top."""
    highest = max(bar.peak.allocated_bytes for bar in bars)
    scale = byte_scale(highest)
    draws_capacity = device_total_bytes is not None and device_total_bytes <= _CAPACITY_RATIO * highest
    end = max(highest, device_total_bytes) if draws_capacity and device_total_bytes else highest
    categories = [c for c in STACK_ORDER if any(bar.peak.by_category.get(c) for bar in bars)]
    layout = base_layout(
        height=_BAR_PX * len(bars) + _FURNITURE_PX,
        barmode="stack",
        bargap=_BAR_GAP,
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 8, "b": 8},  # room for half of the first and the last tick
        xaxis=byte_axis(scale, end=max(float(scale.of(end)) * 1.03, 1.0)),
        yaxis={"range": [len(bars) - 0.6, -0.75], "visible": False, "fixedrange": True},
        annotations=[_bar_title(bar, row) for row, bar in enumerate(bars)],
        shapes=[],
    )
    if draws_capacity and device_total_bytes:
        x = float(scale.of(device_total_bytes))
        layout["shapes"] += capacity_lines(x, len(bars), half=(1 - _BAR_GAP) / 2)
        text = f"device {bytes_text(device_total_bytes)}"
        layout["annotations"].append(
            note(text, x=x, y=0, yref="paper", xanchor="right", yanchor="bottom", font={"size": 11})
        )
    data = [_bars_of(category, bars, scale) for category in categories]
    return {"data": data, "layout": layout}


def _bars_of(category: Category, bars: list[PeakBar], scale: ByteScale) -> Figure:
    return category_bars(
        category,
        titles=[bar.title for bar in bars],
        sizes=[bar.peak.by_category.get(category, 0) for bar in bars],
        totals=[bar.peak.allocated_bytes for bar in bars],
        scale=scale,
    )


def _bar_title(bar: PeakBar, row: int) -> Figure:
    saved = ""
    if bar.reduction_ratio is not None:
        sign = MINUS if bar.reduction_ratio >= 0 else "+"
        saved = f" ({sign}{ratio_text(abs(bar.reduction_ratio))})"
    text = f"<b>{bar.strategy} {bytes_text(bar.peak.allocated_bytes)}</b>{saved} · {short_text(bar.title)}"
    return note(text, x=0, y=row - 0.21, xref="x", yref="y", xanchor="left", yanchor="bottom", yshift=1)
