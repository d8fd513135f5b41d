"""Memory over time: one panel per run, all on one scale of bytes."""

from dataclasses import dataclass
from typing import Final

from fsdp_dashboard.charts.labels import (
    ByteScale,
    Figure,
    byte_scale,
    share_text,
    short_unit,
    whole_ticks,
)
from fsdp_dashboard.charts.palette import COLOURS, STACK_ORDER
from fsdp_dashboard.charts.panels import axes_of, axis_key, panel_title, panels_layout, reference
from fsdp_dashboard.charts.reduce import MAX_ROWS
from fsdp_dashboard.charts.stack import (
    categories_in,
    ms_in_step,
    opening_ms,
    peak_mark,
    phase_bands,
    stack_traces,
)
from fsdp_profile.analysis.memory import Peak
from fsdp_profile.analysis.steps import StepLedger
from fsdp_profile.schema import Category

_FEW_STEPS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPanel:
    """One run's step."""

    title: str
    """Name of the run, as it is."""
    step: StepLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsPanel:
    """One run's peak of every step."""

    title: str
    peaks: list[Peak]


def memory_figure(panels: list[MemoryPanel]) -> Figure:
    """Stacked categories over one step of each run, with phases and the peak, on one y scale."""
    highest = max(_highest(panel.step) for panel in panels)
    scale = byte_scale(highest)
    categories = categories_in([panel.step for panel in panels])
    only_step = {panel.step.step for panel in panels}
    x_title = f"ms in step {only_step.pop()}" if len(only_step) == 1 else "ms in step"
    layout = panels_layout(len(panels), scale=scale, highest_bytes=highest, x_title=x_title)
    opening = [opening_ms(panel.step) for panel in panels]
    max_rows = MAX_ROWS // len(panels)
    data = []
    for number, panel in enumerate(panels):
        step, axes = panel.step, axes_of(number)
        marker, peak_label = peak_mark(step, scale=scale, axes=axes)
        shapes, phase_labels = phase_bands(step, axes=axes)
        data += stack_traces(step, scale=scale, categories=categories, axes=axes, max_rows=max_rows)
        data.append(marker)
        layout["shapes"] += shapes
        layout["annotations"] += [*phase_labels, peak_label]
        if len(panels) > 1:
            line, note = reference(_highest(step), highest, scale=scale, axes=axes)
            title = panel_title(panel.title, axes, f", rank {step.rank}, step {step.step}")
            layout["shapes"].append(line)
            layout["annotations"] += [*note, title]
        layout[axis_key(axes[0])] |= {
            # Bytes share a scale, times do not: a short step beside a long one would be a sliver.
            "range": [opening[number], float(ms_in_step(step.end_ns, step))],
            "unifiedhovertitle": {"text": f"%{{x:.3f}} ms in step {step.step}"},
        }
    return {"data": data, "layout": layout}


def steps_figure(panels: list[StepsPanel]) -> Figure:
    """The composition of every step's peak, one bar per step, on one y scale."""
    peaks = [peak for panel in panels for peak in panel.peaks]
    highest = max(peak.allocated_bytes for peak in peaks)
    scale = byte_scale(highest)
    categories = [c for c in STACK_ORDER if any(peak.by_category.get(c) for peak in peaks)]
    most = max(len(panel.peaks) for panel in panels)
    layout = panels_layout(len(panels), scale=scale, highest_bytes=highest, x_title="step")
    layout |= {"barmode": "stack", "bargap": 0.6 if most <= _FEW_STEPS else 0.2}
    data = []
    for number, panel in enumerate(panels):
        axes = axes_of(number)
        data += [_step_bars(panel, category, scale, axes, legend=number == 0) for category in categories]
        data.append(_step_totals(panel, scale, axes))
        if len(panels) > 1:
            layout["annotations"].append(panel_title(panel.title, axes))
        layout[axis_key(axes[0])] |= {
            "unifiedhovertitle": {"text": "peak of step %{x}"},
            **whole_ticks(most),
        }
    return {"data": data, "layout": layout}


def _highest(step: StepLedger) -> int:
    return int(step.ledger.allocated_bytes.max())


def _step_bars(
    panel: StepsPanel, category: Category, scale: ByteScale, axes: tuple[str, str], *, legend: bool
) -> Figure:
    sizes = [peak.by_category.get(category, 0) for peak in panel.peaks]
    return {
        "type": "bar",
        "x": [peak.step for peak in panel.peaks],
        "y": scale.of(sizes),
        "xaxis": axes[0],
        "yaxis": axes[1],
        "name": str(category),
        "legendgroup": str(category),
        "showlegend": legend,
        "marker": {"color": COLOURS[category], "line": {"width": 0}},
        "customdata": [share_text(size, p.allocated_bytes) for size, p in zip(sizes, panel.peaks, strict=True)],
        "hovertemplate": f"{category} %{{y:.2f}} {scale.name} (%{{customdata}})<extra></extra>",
    }


def _step_totals(panel: StepsPanel, scale: ByteScale, axes: tuple[str, str]) -> Figure:
    """Carries the hover text of the whole bar."""
    units = ["" if p.unit_name is None else f", unit {short_unit(p.unit_name)}" for p in panel.peaks]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [peak.step for peak in panel.peaks],
        "y": scale.of([peak.allocated_bytes for peak in panel.peaks]),
        "xaxis": axes[0],
        "yaxis": axes[1],
        "name": "allocated",
        "showlegend": False,
        "marker": {"opacity": 0},
        "customdata": [f"{peak.phase}{unit}" for peak, unit in zip(panel.peaks, units, strict=True)],
        "hovertemplate": f"<b>allocated %{{y:.2f}} {scale.name}</b>, %{{customdata}}<extra></extra>",
    }
