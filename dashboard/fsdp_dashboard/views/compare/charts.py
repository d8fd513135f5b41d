"""Two runs on one axis: their steps under each other, and the way from one peak to the other."""

from typing import Final

from fsdp_dashboard.charts.labels import (
    MINUS,
    ByteScale,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    plot_text,
    share_text,
    short_text,
)
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_dashboard.charts.panels import axes_of, axis_key
from fsdp_dashboard.charts.stack import LABELLED_RATIO
from fsdp_dashboard.views.memory.charts import MemoryPanel, memory_figure
from fsdp_profile.analysis.compare.peaks import ComparedRun
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Phase

_PHASES: Final = frozenset(phase.label for phase in Phase)
_ROW_PX: Final = 30
_FURNITURE_PX: Final = 50
_HEADROOM: Final = 1.4
"""Room for the text at the end of the longest bar."""
_MAX_TITLE_CHARS: Final = 18


def aligned_figure(panels: list[MemoryPanel], *, x_title: str) -> Figure:
    """The panels of memory_figure on one axis of time: zooming one zooms all."""
    drawn = memory_figure(panels)
    layout = drawn["layout"]
    axes = [axis_key(axes_of(number)[0]) for number in range(len(panels))]
    ranges = [layout[axis]["range"] for axis in axes]
    shared = [min(low for low, _ in ranges), max(high for _, high in ranges)]
    wide = {(s["xref"], (s["x0"] + s["x1"]) / 2) for s in layout["shapes"]
            if s["type"] == "rect" and s["x1"] - s["x0"] >= LABELLED_RATIO * (shared[1] - shared[0])}  # fmt: skip
    # The name of a phase that has become too short for it goes; its hover text has it.
    layout["annotations"] = [
        a for a in layout["annotations"] if a["text"] not in _PHASES or (a["xref"], a["x"]) in wide
    ]
    for number, axis in enumerate(axes):
        layout[axis]["range"] = shared
        if number:
            layout[axis]["matches"] = "x"
    layout[axes[-1]]["title"]["text"] = plot_text(x_title)
    return drawn


def change_figure(base: ComparedRun, mine: ComparedRun) -> Figure:
    """From the baseline's peak to the run's: one floating bar for each category that changed, largest first."""
    scale = byte_scale(max(base.peak.allocated_bytes, mine.peak.allocated_bytes))
    rows = [_whole(base, scale)]
    at, highest = base.peak.allocated_bytes, base.peak.allocated_bytes
    for category, delta in mine.waterfall:
        low = min(at, at + delta)
        share = share_text(abs(delta), base.peak.allocated_bytes)
        rows.append(
            {
                "label": category.label,
                "base": low,
                "size": abs(delta),
                "colour": category.colour,
                "text": f"{'+' if delta > 0 else MINUS}{bytes_text(abs(delta))}",
                "hover": f"<b>{category.label}</b> {'+' if delta > 0 else MINUS}{bytes_text(abs(delta))}, {share} of "
                "the baseline's peak",
            }
        )
        at += delta
        highest = max(highest, at, low + abs(delta))
    rows.append(_whole(mine, scale))
    end = float(scale.of(max(highest, mine.peak.allocated_bytes))) * _HEADROOM
    layout = base_layout(
        height=_ROW_PX * len(rows) + _FURNITURE_PX,
        bargap=0.3,
        hovermode="closest",
        xaxis=byte_axis(scale, end=max(end, 1.0)),
        yaxis={
            "autorange": "reversed",
            "fixedrange": True,
            "automargin": True,
            "tickvals": list(range(len(rows))),
            "ticktext": [row["label"] for row in rows],
        },
    )
    return {"data": [_bars(rows, scale)], "layout": layout}


def _whole(run: ComparedRun, scale: ByteScale) -> Figure:
    name = short_text(run.run.name, max_chars=_MAX_TITLE_CHARS)
    size = run.peak.allocated_bytes
    text = bytes_text(size)
    return {"label": f"<b>{name}</b>", "base": 0, "size": size, "colour": NEUTRAL, "text": text,
            "hover": f"<b>peak</b> {text}"}  # fmt: skip


def _bars(rows: list[Figure], scale: ByteScale) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(rows))),
        "x": [float(scale.of(row["size"])) for row in rows],
        "base": [float(scale.of(row["base"])) for row in rows],
        "marker": {"color": [row["colour"] for row in rows], "line": {"width": 0}},
        "text": [row["text"] for row in rows],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [row["hover"] for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
        "showlegend": False,
        "name": "change",
    }
