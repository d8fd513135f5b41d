"""Ranks side by side: the categories of each peak, the length of the steps, and the waits."""

from typing import Final

from fsdp_dashboard.charts.labels import (
    GRID,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    plot_text,
    share_text,
    short_unit,
    whole_ticks,
)
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_profile.analysis.collectives.timeline import RankWait
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.core.schema import Phase
from fsdp_profile.core.words import label_of

MAX_LINES: Final = 8
"""More ranks than this are drawn in one colour: their names would not fit."""
_LINE_COLOURS: Final = (
    "#4e6be8",
    "#e69126",
    "#0c804d",
    "#d13b2b",
    "#7a64b0",
    "#46a0a0",
    "#d1737c",
    "#773f08",
)
_WAIT_COLOUR: Final = Category.INPUT.colour
_TRANSFER_COLOUR: Final = Category.PARAM.colour


def peaks_figure(peaks: list[Peak], *, max_bytes: int) -> Figure:
    """One stacked bar per rank; `max_bytes` sets the scale, so that figures of several runs share it."""
    scale = byte_scale(max_bytes)
    categories = [c for c in STACK_ORDER if any(peak.by_category.get(c) for peak in peaks)]
    data = [
        {
            "type": "bar",
            "x": [str(peak.rank) for peak in peaks],
            "y": scale.of([peak.by_category.get(category, 0) for peak in peaks]),
            "name": category.label,
            "marker": {"color": category.colour, "line": {"width": 0}},
            "customdata": [_peak_hover(peak, peak.by_category.get(category, 0)) for peak in peaks],
            "hovertemplate": f"<b>rank %{{x}}</b><br>{category.label} %{{customdata[0]}} (%{{customdata[1]}})<br>"
            "peak %{customdata[2]} in %{customdata[3]}%{customdata[4]}<extra></extra>",
        }
        for category in categories
    ]
    layout = base_layout(
        height=330,
        barmode="stack",
        bargap=0.3 if len(peaks) > 3 else 0.6,
        hovermode="closest",
        xaxis={"type": "category", "title": {"text": "rank", "standoff": 4}, "nticks": 16},
        yaxis=byte_axis(scale, end=max(float(scale.of(max_bytes)) * 1.1, 1.0)),
        annotations=[
            {
                "x": str(peak.rank),
                "y": float(scale.of(peak.allocated_bytes)),
                "text": bytes_text(peak.allocated_bytes),
                "showarrow": False,
                "yanchor": "bottom",
                "font": {"size": 11},
            }
            for peak in (peaks if len(peaks) <= MAX_LINES else [])
        ],
    )
    return {"data": data, "layout": layout}


def step_times_figure(durations_ns: dict[int, list[int]], *, max_ns: int) -> Figure:
    """Length of each complete step, one line per rank (rank -> durations); `max_ns` sets the scale."""
    most = max(map(len, durations_ns.values()))
    many = len(durations_ns) > MAX_LINES
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": list(range(len(durations))),
            "y": [ns / 1e6 for ns in durations],
            "name": f"rank {rank}",
            "showlegend": not many,
            "line": {"width": 1.5, "color": NEUTRAL if many else _LINE_COLOURS[number % MAX_LINES]},
            "marker": {"size": 6},
            "hovertemplate": f"rank {rank}, step %{{x}}<br>%{{y:.2f}} ms<extra></extra>",
        }
        for number, (rank, durations) in enumerate(durations_ns.items())
    ]
    layout = base_layout(
        height=300,
        hovermode="closest",
        xaxis={"title": {"text": "step", "standoff": 4}, "zeroline": False, **whole_ticks(most)},
        yaxis={
            "range": [0, max_ns / 1e6 * 1.1],
            "fixedrange": True,
            "ticksuffix": " ms",
            "nticks": 6,
            "gridcolor": GRID,
        },
    )
    return {"data": data, "layout": layout}


def waits_figure(waits: list[RankWait], *, max_ns: int) -> Figure:
    """One bar per rank: the transfer of its matched collectives, and on it its wait; `max_ns` sets the scale."""
    hover = [
        f"<b>rank {wait.rank}</b>, {wait.count:,} matched collectives<br>waited {ns_text(wait.wait_ns)}<br>"
        f"transfer {ns_text(wait.transfer_ns)}"
        for wait in waits
    ]
    parts = (
        ("transfer", [wait.transfer_ns for wait in waits], _TRANSFER_COLOUR),
        ("wait for the last rank", [wait.wait_ns for wait in waits], _WAIT_COLOUR),
    )
    data = [
        {
            "type": "bar",
            "x": [str(wait.rank) for wait in waits],
            "y": [ns / 1e6 for ns in values],
            "name": name,
            "marker": {"color": colour, "line": {"width": 0}},
            "customdata": hover,
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for name, values, colour in parts
    ]
    layout = base_layout(
        height=250,
        barmode="stack",
        bargap=0.3 if len(waits) > 3 else 0.6,
        hovermode="closest",
        xaxis={"type": "category", "title": {"text": "rank", "standoff": 8}, "nticks": 16},
        yaxis={
            "range": [0, max_ns / 1e6 * 1.1 or 1],
            "fixedrange": True,
            "ticksuffix": " ms",
            "nticks": 5,
            "gridcolor": GRID,
        },
    )
    return {"data": data, "layout": layout}


def _peak_hover(peak: Peak, size_bytes: int) -> list[str]:
    unit = "" if peak.unit_name is None else f", unit {short_unit(peak.unit_name)}"
    share = share_text(size_bytes, peak.allocated_bytes)
    return [
        bytes_text(size_bytes),
        share,
        bytes_text(peak.allocated_bytes),
        f"{plot_text(label_of(Phase, peak.phase))} of step {peak.step}",
        unit,
    ]
