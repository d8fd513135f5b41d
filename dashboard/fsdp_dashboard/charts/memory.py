"""Memory over time: one panel per run, all on one scale of bytes."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fsdp_dashboard.charts.labels import (
    ByteScale,
    Figure,
    byte_scale,
    share_text,
    short_unit,
    whole_ticks,
)
from fsdp_dashboard.charts.levels import Level, drawn_levels, level_trace, recorded_levels
from fsdp_dashboard.charts.palette import COLOURS, STACK_ORDER
from fsdp_dashboard.charts.panels import axes_of, axis_key, panel_title, panels_layout, reference
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
from fsdp_profile.analysis.thinning import MAX_ROWS
from fsdp_profile.schema import Category

_FEW_STEPS: Final = 6
_LABEL_RATIO: Final = 0.12
"""Of the highest line: what the label of a peak takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPanel:
    """One run's step."""

    title: str
    """Name of the run, as it is."""
    step: StepLedger
    levels: pa.Table | None = None
    """What the allocator and the device held, see levels.recorded_levels; None: the categories alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsPanel:
    """One run's peak of every step."""

    title: str
    peaks: list[Peak]


def memory_figure(panels: list[MemoryPanel]) -> Figure:
    """Stacked categories over one step of each run, with phases, levels and the peak, on one y scale.

    `layout.meta.levels_above` names the levels that are far above the figure, with their highest bytes.
    """
    highest = max(_highest(panel.step) for panel in panels)
    levels = [_levels(panel) for panel in panels]
    drawn = [drawn_levels(found, highest_bytes=highest) for found in levels]
    top = max([highest, *(int(level.size_bytes.max()) for found in drawn for level in found)])
    scale = byte_scale(top)
    categories = categories_in([panel.step for panel in panels])
    only_step = {panel.step.step for panel in panels}
    x_title = f"ms in step {only_step.pop()}" if len(only_step) == 1 else "ms in step"
    layout = panels_layout(len(panels), scale=scale, highest_bytes=top, x_title=x_title)
    layout["meta"] = {"levels_above": _above(levels, drawn)}
    opening = [opening_ms(panel.step) for panel in panels]
    max_rows = MAX_ROWS // len(panels)
    data: list[Figure] = []
    for number, panel in enumerate(panels):
        step, axes = panel.step, axes_of(number)
        data += stack_traces(
            step, scale=scale, categories=categories, axes=axes, max_rows=max_rows, levels=levels[number]
        )
        named = {trace["name"] for trace in data}
        data += [
            level_trace(level, step, scale=scale, axes=axes, max_rows=max_rows, in_legend=level.name not in named)
            for level in drawn[number]
        ]
        above = _clear_of(drawn[number], _highest(step), room_bytes=int(_LABEL_RATIO * top))
        data.append(_decorate(layout, panel, axes, scale=scale, above_bytes=above))
        if len(panels) > 1:
            _title(layout, panel, axes, scale=scale, highest_bytes=highest)
        layout[axis_key(axes[0])] |= {
            # Bytes share a scale, times do not: a short step beside a long one would be a sliver.
            "range": [opening[number], float(ms_in_step(step.end_ns, step))],
            "unifiedhovertitle": {"text": f"%{{x:.3f}} ms in step {step.step}"},
        }
    return {"data": data, "layout": layout}


def _decorate(
    layout: Figure, panel: MemoryPanel, axes: tuple[str, str], *, scale: ByteScale, above_bytes: int
) -> Figure:
    """The marker of the peak; its label and the phases go into the layout."""
    marker, peak_label = peak_mark(panel.step, scale=scale, axes=axes, above_bytes=above_bytes)
    shapes, phase_labels = phase_bands(panel.step, axes=axes)
    layout["shapes"] += shapes
    layout["annotations"] += [*phase_labels, peak_label]
    return marker


def _title(layout: Figure, panel: MemoryPanel, axes: tuple[str, str], *, scale: ByteScale, highest_bytes: int) -> None:
    """The panel's name, and how high the highest of all is."""
    step = panel.step
    line, note = reference(_highest(step), highest_bytes, scale=scale, axes=axes)
    layout["shapes"].append(line)
    layout["annotations"] += [*note, panel_title(panel.title, axes, f", rank {step.rank}, step {step.step}")]


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


def _levels(panel: MemoryPanel) -> list[Level]:
    return [] if panel.levels is None else recorded_levels(panel.levels)


def _clear_of(levels: list[Level], peak_bytes: int, *, room_bytes: int) -> int:
    """Above which line the label of the peak has room."""
    found = peak_bytes
    for size_bytes in sorted(int(level.size_bytes.max()) for level in levels):
        if 0 < size_bytes - found < room_bytes:
            found = size_bytes
    return found


def _above(levels: list[list[Level]], drawn: list[list[Level]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for known, shown in zip(levels, drawn, strict=True):
        for level in known:
            if level.name not in {other.name for other in shown}:
                found[level.name] = max(found.get(level.name, 0), int(level.size_bytes.max()))
    return found


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
