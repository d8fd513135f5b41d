"""Where the time of each step went: one stacked bar per step, whose parts add up to the step's span."""

from collections.abc import Mapping

from fsdp_dashboard.charts.bars import hatched, step_bars_layout
from fsdp_dashboard.charts.labels import Figure
from fsdp_dashboard.charts.palette import TIME_COLOURS
from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.core.humanize import ns_text, ratio_text


def breakdown_figure(found: Mapping[int, TimeBreakdown]) -> Figure:
    """Compute below, then communication not hidden behind compute, copies and idle time; the hover has the rest."""
    steps = list(found.values())
    parts = {
        "compute": [b.compute_ns for b in steps],
        "exposed": [b.exposed_ns for b in steps],
        "copies": [b.memory_ns for b in steps],
        "idle": [b.idle_ns for b in steps],
    }
    hover = [_hover(step, b) for step, b in found.items()]
    data = [
        {
            "type": "bar",
            "x": [str(step) for step in found],
            "y": [ns / 1e6 for ns in values],
            "name": name,
            "customdata": hover,
            "hovertemplate": "%{customdata}<extra></extra>",
            **_style(name),
        }
        for name, values in parts.items()
        if any(values)
    ]
    highest = max((b.span_ns for b in steps), default=0)
    return {"data": data, "layout": step_bars_layout(len(steps), highest_ns=highest)}


def _style(name: str) -> Figure:
    colour = TIME_COLOURS[name]
    return hatched(colour) if name == "exposed" else {"marker": {"color": colour, "line": {"width": 0}}}


def _hover(step: int, found: TimeBreakdown) -> str:
    rows = [
        ("compute", found.compute_ns),
        ("exposed", found.exposed_ns),
        ("copies", found.memory_ns),
        ("idle", found.idle_ns),
    ]
    parts = [f"{name} {ns_text(ns)} ({ratio_text(ns / found.span_ns if found.span_ns else None)})" for name, ns in rows]
    parts.append(f"overlapped {ns_text(found.overlapped_ns)}")
    if found.host_bound_ns is not None:
        parts.append(f"host-bound {ns_text(found.host_bound_ns)} of the idle time")
    return "<br>".join([f"<b>step {step}</b>, {ns_text(found.span_ns)}", *parts])
