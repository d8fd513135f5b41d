"""Collectives: one step as bars per rank and kind, and how much of each step was exposed."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_dashboard.charts.bars import hatched, step_bars_layout
from fsdp_dashboard.charts.labels import (
    MAX_NAME_CHARS,
    Figure,
    base_layout,
    plot_text,
    short_text,
    short_unit,
)
from fsdp_dashboard.charts.palette import COLLECTIVE_COLOURS, NEUTRAL
from fsdp_dashboard.charts.stack import phase_shapes
from fsdp_profile.analysis.collectives.timeline import StepCalls, StepTotal
from fsdp_profile.core.humanize import bytes_text, ns_text, rate_text, ratio_text
from fsdp_profile.core.schema import CollectiveKind, Phase
from fsdp_profile.core.words import label_of

MAX_BARS: Final = 2000
"""Plotly draws this many bars without delay; of more the longest are drawn."""
MAX_WINDOWS: Final = 4000
"""As many exposed time windows within the bars are drawn; of more the longest."""
MAX_LANES: Final = 48
"""More lanes than this: one per rank, all kinds in it."""
OVERLAPPED_OPACITY: Final = 0.5
"""Opacity of the part of a bar that is hidden behind compute."""
_LIGHT: Final = "rgba(128,138,148,0.5)"
"""NEUTRAL at that opacity."""
_LANE_PX: Final = 28
_MIN_PX: Final = 130
"""Of the lanes: a lower figure would cut the hover text off."""
_MAX_PX: Final = 1100
_FURNITURE_PX: Final = 70
_MAX_TICKS: Final = 40
_MARGIN_RATIO: Final = 0.02
_BAR_RATIO: Final = 0.74
"""Thickness of a bar in a lane of _LANE_PX; in a higher one it stays as thick."""


def timeline_figure(step: StepCalls) -> Figure:
    """One lane per rank and kind; the exposed part of each bar is hatched in its full colour.

    Calls of one kind that overlap on a rank get a lane each. `layout.meta` says how many calls (`calls_left_out`)
    and exposed windows (`windows_left_out`) were too many to draw.
    """
    shown = _longest(_length(step.calls), MAX_BARS)
    calls = step.calls.take(pa.array(shown))
    lane, names = _lanes(calls)
    lanes_px = min(max(len(names) * _LANE_PX, _MIN_PX), _MAX_PX)
    width = _BAR_RATIO * min(len(names) * _LANE_PX / lanes_px, 1.0)
    data = _kind_traces(calls, lane, step)
    left_out = 0
    if step.exposed is not None:
        windows = step.exposed.filter(pa.array(np.isin(step.exposed.column("call").to_numpy(), shown)))
        longest = _longest(_length(windows), MAX_WINDOWS)
        left_out = windows.num_rows - len(longest)
        data += _exposed_traces(windows.take(pa.array(longest)), shown, calls, lane, step)
    layout = _timeline_layout(step, names, lanes_px)
    layout["meta"] = {"calls_left_out": step.calls.num_rows - len(shown), "windows_left_out": left_out}
    return {"data": [{**drawn, "width": width} for drawn in data], "layout": layout}


def steps_figure(steps: list[StepTotal]) -> Figure:
    """One bar per step: the exposed part of its collective time below, the overlapped part on it."""
    numbers = [total.step for total in steps]
    shown = [_step_hover(total) for total in steps]
    parts = _step_parts(steps)
    data = [
        {
            "type": "bar",
            "x": [str(number) for number in numbers],
            "y": [ns / 1e6 for ns in values],
            "name": name,
            "customdata": shown,
            "hovertemplate": "%{customdata}<extra></extra>",
            **style,
        }
        for name, values, style in parts
    ]
    highest = max((total.total_ns for total in steps), default=0)
    layout = step_bars_layout(len(steps), highest_ns=highest)
    return {"data": data, "layout": layout}


def _step_parts(steps: list[StepTotal]) -> list[tuple[str, list[int], Figure]]:
    exposed = [total.exposed_ns for total in steps]
    known = [ns for ns in exposed if ns is not None]
    if len(known) < len(exposed):
        return [("collectives", [total.total_ns for total in steps], {"marker": {"color": NEUTRAL}})]
    overlapped = [total.total_ns - ns for total, ns in zip(steps, known, strict=True)]
    return [
        ("exposed", known, hatched(NEUTRAL)),
        ("overlapped", overlapped, {"marker": {"color": _LIGHT}}),
    ]


def _step_hover(total: StepTotal) -> str:
    lines = [f"<b>step {total.step}</b>", f"collectives {ns_text(total.total_ns)}"]
    if total.exposed_ns is not None:
        share = ratio_text(total.exposed_ns / total.total_ns if total.total_ns else None)
        lines.append(f"exposed {ns_text(total.exposed_ns)} ({share})")
    return "<br>".join(lines)


def _lanes(calls: pa.Table) -> tuple[list[int], list[str]]:
    """The lane of each call, and the names of the lanes, top to bottom: by rank, then in order of the kinds."""
    ranks, kinds = calls.column("rank").to_pylist(), calls.column("kind").to_pylist()
    pairs = sorted(set(zip(ranks, kinds, strict=True)), key=lambda pair: (pair[0], _kind_order(pair[1])))
    several = len(set(ranks)) > 1
    if len(pairs) > MAX_LANES:
        row_of = {rank: row for row, rank in enumerate(sorted(set(ranks)))}
        return [row_of[rank] for rank in ranks], [f"rank {rank}" for rank in row_of]
    ends: dict[tuple[int, str], list[int]] = {pair: [] for pair in pairs}
    depths = []
    for pair, start, end in zip(zip(ranks, kinds, strict=True), *_times(calls), strict=True):
        open_until = ends[pair]
        depth = next((d for d, until in enumerate(open_until) if until <= start), len(open_until))
        open_until[depth : depth + 1] = [end]
        depths.append(depth)
    first: dict[tuple[int, str], int] = {}
    names: list[str] = []
    for rank, kind in pairs:
        first[rank, kind] = len(names)
        name = f"{rank} · {_label(kind)}" if several else _label(kind)
        names += [name] + [""] * (len(ends[rank, kind]) - 1)
    return [first[pair] + depth for pair, depth in zip(zip(ranks, kinds, strict=True), depths, strict=True)], names


def _kind_traces(calls: pa.Table, lane: list[int], step: StepCalls) -> list[Figure]:
    kinds = calls.column("kind").to_pylist()
    hover = _hovers(calls, step)
    start, length = _ms(calls, step)
    traces = []
    for kind in sorted(set(kinds), key=_kind_order):
        rows = [row for row, word in enumerate(kinds) if word == kind]
        colour = _colour(kind)
        traces.append(
            {
                **_bar(start[rows], length[rows], [lane[row] for row in rows]),
                "name": _label(kind),
                # A call of microseconds still shows: its outline is a pixel wide.
                "marker": {"color": colour, "line": {"width": 1, "color": colour}},
                "opacity": 1 if step.exposed is None else OVERLAPPED_OPACITY,
                "customdata": [hover[row] for row in rows],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return traces


def _exposed_traces(windows: pa.Table, shown: Any, calls: pa.Table, lane: list[int], step: StepCalls) -> list[Figure]:
    """The exposed parts over the bars, and the two entries of the legend that tell them apart."""
    row = np.searchsorted(shown, windows.column("call").to_numpy()).tolist()
    kinds = calls.column("kind").to_pylist()
    start, length = _ms(windows, step)
    colours = [_colour(kinds[i]) for i in row]
    style = hatched(NEUTRAL)
    # Without an outline: it would make slivers of microseconds look like all of the bar.
    style["marker"] |= {"color": colours, "line": {"width": 0}}
    exposed = {**_bar(start, length, [lane[i] for i in row]), "name": "exposed", "hoverinfo": "skip", **style}
    overlapped = {
        **_bar(start[:0], length[:0], []),
        "name": "overlapped",
        "marker": {"color": _LIGHT},
        "hoverinfo": "skip",
    }
    return [{**exposed, "legend": "legend2"}, {**overlapped, "legend": "legend2"}]


def _bar(start_ms: Any, length_ms: Any, lane: list[int]) -> Figure:
    return {"type": "bar", "orientation": "h", "base": start_ms, "x": length_ms, "y": lane}


def _hovers(calls: pa.Table, step: StepCalls) -> list[str]:
    return [_hover(call, step) for call in calls.to_pylist()]


def _hover(call: dict[str, Any], step: StepCalls) -> str:
    """What is known of one call, as plotly text; what was not recorded has no line."""
    length, exposed, size = call["end_ns"] - call["start_ns"], call["exposed_ns"], call["size_bytes"]
    unit = "no unit" if call["unit"] is None else f"unit {short_unit(call['unit'], max_chars=2 * MAX_NAME_CHARS)}"
    dtype = f" of {short_text(call['dtype'])}" if call["dtype"] else ""
    at = (call["start_ns"] - step.start_ns) / 1e6
    sequence = "" if call["sequence"] is None else f", sequence {call['sequence']}"
    lines = [
        f"<b>{_label(call['kind'])}</b>, {unit}",
        f"rank {call['rank']}, {plot_text(label_of(Phase, call['phase']))}, at {at:.3f} ms, for {ns_text(length)}",
        f"bytes {bytes_text(size)}{dtype}",
        f"{_group_line(call)}{sequence}",
    ]
    if exposed is not None:
        lines.append(f"exposed {ns_text(exposed)} ({ratio_text(exposed / length if length else None)})")
    if call["collective"] is not None:
        pause = f" ({ns_text(call['paused_ns'])} of it in a pause of the capture)" if call["paused_ns"] else ""
        lines.append(f"waited {ns_text(call['wait_ns'])}{pause}, transfer {ns_text(call['transfer_ns'])}")
    if call["busbw_bytes_per_s"] is not None:
        algbw, busbw = rate_text(call["algbw_bytes_per_s"]), rate_text(call["busbw_bytes_per_s"])
        lines.append(f"algbw {algbw}, busbw {busbw}")
    return "<br>".join(lines)


def _group_line(call: dict[str, Any]) -> str:
    name = " ".join(short_text(word) for word in (call["group_description"], call["group"]) if word)
    size = "" if call["group_size"] is None else f", {call['group_size']} ranks"
    return f"group {name or 'name not recorded'}{size}"


def _timeline_layout(step: StepCalls, names: list[str], lanes_px: int) -> Figure:
    opens, ends = _window(step)
    shapes, labels = phase_shapes(step.phases, start_ns=step.start_ns, width_ms=ends - opens, axes=("x", "y"))
    return base_layout(
        height=lanes_px + _FURNITURE_PX,
        hovermode="closest",
        barmode="overlay",
        shapes=shapes,
        annotations=labels,
        xaxis={
            "range": [opens, ends],
            "title": {"text": f"ms in step {step.step}", "standoff": 4},
            "showgrid": False,
            "zeroline": False,
            "hoverformat": ".3f",
        },
        yaxis=_lane_axis(names, has_labels=bool(labels)),
    )


def _lane_axis(names: list[str], *, has_labels: bool) -> Figure:
    every = -(-len(names) // _MAX_TICKS) or 1
    return {
        "range": [max(len(names), 1) - 0.5, -1.0 if has_labels else -0.5],
        "fixedrange": True,
        "tickmode": "array",
        "tickvals": list(range(0, len(names), every)),
        "ticktext": names[::every],
        "tickfont": {"size": 11},
        "gridcolor": "rgba(128,138,148,0.15)",
        "zeroline": False,
    }


def _window(step: StepCalls) -> tuple[float, float]:
    """Where the view opens and ends: the time between two steps before the first phase or call is left of it."""
    begins = [span.start_ns for span in step.phases if span.phase != Phase.OTHER]
    begins += step.calls.column("start_ns").to_pylist()[:1]
    whole = (step.end_ns - step.start_ns) / 1e6
    first = (min(begins, default=step.start_ns) - step.start_ns) / 1e6
    return max(first - _MARGIN_RATIO * (whole - first), 0.0), whole


def _label(kind: str) -> str:
    return plot_text(label_of(CollectiveKind, kind))


def _kind_order(kind: str) -> tuple[int, str]:
    words = [member.value for member in CollectiveKind]
    return (words.index(kind) if kind in words else len(words), kind)


def _colour(kind: str) -> str:
    known = next((member for member in CollectiveKind if member.value == kind), CollectiveKind.OTHER)
    return COLLECTIVE_COLOURS[known]


def _times(table: pa.Table) -> tuple[list[int], list[int]]:
    return table.column("start_ns").to_pylist(), table.column("end_ns").to_pylist()


def _ms(table: pa.Table, step: StepCalls) -> tuple[Any, Any]:
    """Start in the step and length of each row, in ms."""
    start, end = table.column("start_ns").to_numpy(), table.column("end_ns").to_numpy()
    return (start - step.start_ns) / 1e6, (end - start) / 1e6


def _length(table: pa.Table) -> Any:
    return table.column("end_ns").to_numpy() - table.column("start_ns").to_numpy()


def _longest(length: Any, most: int) -> Any:
    """Rows of the longest, in order."""
    if len(length) <= most:
        return np.arange(len(length))
    return np.sort(np.argsort(-length, kind="stable")[:most])
