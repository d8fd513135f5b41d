"""What each unit did in one step, under the memory curve, on one axis of time."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_dashboard.charts.labels import (
    MAX_NAME_CHARS,
    Figure,
    base_layout,
    byte_axis,
    byte_scale,
    plot_text,
    short_unit,
)
from fsdp_dashboard.charts.palette import SPAN_COLOURS
from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.charts.stack import (
    categories_in,
    ms_in_step,
    opening_ms,
    peak_mark,
    phase_bands,
    stack_traces,
)
from fsdp_profile.analysis.memory.downsampling import MAX_ROWS
from fsdp_profile.analysis.memory.step_ledger import StepLedger
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Prefetch, SpanKind
from fsdp_profile.core.words import label_of

MAX_SPANS: Final = 2000
"""Plotly draws this many bars without delay; of more the longest are drawn."""
_MEMORY_PX: Final = 270
_BETWEEN_PX: Final = 14
_UNIT_PX: Final = 26
_MAX_UNITS_PX: Final = 1100
_FURNITURE_PX: Final = 70

# (name in the legend, kinds, thickness of the bar): what lies behind first.
_LAYERS: Final = (
    ("unsharded", (SpanKind.UNSHARDED,), 0.86),
    ("forward", (SpanKind.FORWARD,), 0.34),
    ("backward", (SpanKind.BACKWARD,), 0.34),
    ("gather", (SpanKind.ALL_GATHER, SpanKind.COPY_OUT), 0.5),
    ("reduce", (SpanKind.REDUCE, SpanKind.REDUCE_SCATTER), 0.5),
    ("all-reduce", (SpanKind.ALL_REDUCE,), 0.5),
)


def units_figure(step: StepLedger, spans: pa.Table) -> Figure:
    """Stacked memory above, one row per unit below; `spans` as of steps.spans_between.

    `layout.meta.spans_left_out` says how many spans were too many to draw.
    """
    shown = _longest(spans)
    names = step.unit_names
    rows = _rows(names, spans)
    units_px = min(max(len(rows), 2) * _UNIT_PX, _MAX_UNITS_PX)
    scale = byte_scale(int(step.ledger.allocated_bytes.max()))
    highest = float(scale.of(int(step.ledger.allocated_bytes.max())))
    axes = ("x", "y")
    marker, peak_label = peak_mark(step, scale=scale, axes=axes)
    shapes, phases = phase_bands(step, axes=axes)
    behind, _ = phase_bands(step, axes=("x", "y2"))
    memory = stack_traces(step, scale=scale, categories=categories_in([step]), axes=axes, max_rows=MAX_ROWS)
    boundary = units_px / (units_px + _MEMORY_PX)
    layout = base_layout(
        height=units_px + _MEMORY_PX + _FURNITURE_PX,
        hovermode="closest",
        barmode="overlay",
        shapes=[*shapes, *behind],
        annotations=[*phases, peak_label],
        meta={"spans_left_out": spans.num_rows - shown.num_rows},
        xaxis=_time_axis(step),
        yaxis=byte_axis(scale, end=max(highest * HEADROOM, 1.0), domain=[_above(boundary, units_px), 1]),
        yaxis2=_unit_axis(names, rows, boundary),
        legend2={"orientation": "h", "y": boundary, "yanchor": "bottom"},
    )
    return {"data": [*memory, marker, *_span_traces(shown, step, rows)], "layout": layout}


def _rows(names: dict[int, str], spans: pa.Table) -> dict[int, int]:
    """Unit -> its row: in the order of their first span, then those without a span."""
    seen = dict.fromkeys(unit for unit in spans.column("unit").to_pylist() if unit in names)
    return {unit: row for row, unit in enumerate([*seen, *(u for u in sorted(names) if u not in seen)])}


def _time_axis(step: StepLedger) -> Figure:
    return {
        "range": [opening_ms(step), float(ms_in_step(step.end_ns, step))],
        "anchor": "y2",
        "title": {"text": f"ms in step {step.step}", "standoff": 4},
        "showgrid": False,
        "zeroline": False,
        "hoverformat": ".3f",
    }


def _unit_axis(names: dict[int, str], rows: dict[int, int], boundary: float) -> Figure:
    return {
        "anchor": "x",
        "domain": [0, boundary],
        "range": [max(len(rows), 1) - 0.4, -0.6],
        "fixedrange": True,
        "tickmode": "array",
        "tickvals": list(rows.values()),
        "ticktext": [short_unit(names[unit], max_chars=18) for unit in rows],
        "tickfont": {"size": 11},
        "gridcolor": "rgba(128,138,148,0.15)",
        "zeroline": False,
    }


def _above(boundary: float, units_px: int) -> float:
    """Where the memory curve begins, a little above the units."""
    return boundary + _BETWEEN_PX / (units_px + _MEMORY_PX)


def _span_traces(spans: pa.Table, step: StepLedger, rows: dict[int, int]) -> list[Figure]:
    kind = np.array(spans.column("kind").to_pylist(), dtype=object)
    traces = [
        _bars(name, spans.filter(pa.array(np.isin(kind, [k.value for k in kinds]))), step, rows, width)
        for name, kinds, width in _LAYERS
    ]
    traces.append(_reshards(spans.filter(pa.array(kind == SpanKind.RESHARD.value)), step, rows))
    return [trace for trace in traces if len(trace["x"])]


def _bars(name: str, spans: pa.Table, step: StepLedger, rows: dict[int, int], width: float) -> Figure:
    start, end = _times(spans)
    is_light = name == "unsharded"
    kinds = spans.column("kind").to_pylist()
    colour = SPAN_COLOURS[SpanKind(kinds[0])] if kinds else ""
    return {
        "type": "bar",
        "orientation": "h",
        "base": ms_in_step(start, step),
        "x": (end - start) / 1e6,
        "y": [rows.get(unit, -1) for unit in spans.column("unit").to_pylist()],
        "width": width,
        "xaxis": "x",
        "yaxis": "y2",
        "legend": "legend2",
        "name": name,
        # A span of microseconds still shows: its outline is a pixel wide.
        "marker": {"color": colour, "line": {"width": 0 if is_light else 1, "color": colour}},
        "opacity": 0.42 if is_light else 1,
        **_hover(spans, step),
    }


def _reshards(spans: pa.Table, step: StepLedger, rows: dict[int, int]) -> Figure:
    """Resharding takes microseconds: a mark at its time."""
    start, _ = _times(spans)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": ms_in_step(start, step),
        "y": [rows.get(unit, -1) for unit in spans.column("unit").to_pylist()],
        "xaxis": "x",
        "yaxis": "y2",
        "legend": "legend2",
        "name": "reshard",
        "marker": {
            "symbol": "line-ns",
            "size": 15,
            "line": {"width": 2, "color": SPAN_COLOURS[SpanKind.RESHARD]},
        },
        **_hover(spans, step),
    }


def _hover(spans: pa.Table, step: StepLedger) -> Figure:
    start, end = _times(spans)
    names = [short_unit(name, max_chars=2 * MAX_NAME_CHARS) for name in spans.column("name").to_pylist()]
    kinds = [plot_text(label_of(SpanKind, kind)) for kind in spans.column("kind").to_pylist()]
    sizes = spans.column("size_bytes").to_pylist()
    origins = zip(spans.column("prefetched").to_pylist(), spans.column("prefetch").to_pylist(), strict=True)
    prefetched = [_prefetched(by) if is_ahead else "" for is_ahead, by in origins]
    begin, length = ms_in_step(start, step), (end - start) / 1e6
    rows = zip(names, kinds, map(bytes_text, sizes), begin, length, prefetched, strict=True)
    return {
        "customdata": [[name, kind, size, round(b, 3), round(n, 3), p] for name, kind, size, b, n, p in rows],
        "hovertemplate": "<b>unit %{customdata[0]}</b><br>%{customdata[1]}%{customdata[5]}<br>"
        f"%{{customdata[2]}}<br>at %{{customdata[3]}} ms in step {step.step}, "
        "for %{customdata[4]} ms<extra></extra>",
    }


def _prefetched(by: str | None) -> str:
    """That it was prefetched, and by whom where the recording holds it."""
    return f", prefetched ({plot_text(label_of(Prefetch, by))})" if by else ", prefetched"


def _times(spans: pa.Table) -> tuple[Any, Any]:
    return spans.column("start_ns").to_numpy(), spans.column("end_ns").to_numpy()


def _longest(spans: pa.Table) -> pa.Table:
    if spans.num_rows <= MAX_SPANS:
        return spans
    start, end = _times(spans)
    longest = np.sort(np.argsort(start - end, kind="stable")[:MAX_SPANS])
    return spans.take(pa.array(longest))
