"""Memory over time: one panel per run, all on one scale of bytes."""

from dataclasses import dataclass

from fsdp_dashboard.charts.labels import (
    ByteScale,
    Figure,
    byte_scale,
)
from fsdp_dashboard.charts.panels import axes_of, axis_key, panel_title, panels_layout, reference
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


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPanel:
    """One run's step."""

    title: str
    """Name of the run, as it is."""
    step: StepLedger


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
    data: list[Figure] = []
    for number, panel in enumerate(panels):
        step, axes = panel.step, axes_of(number)
        data += stack_traces(step, scale=scale, categories=categories, axes=axes, max_rows=max_rows)
        data.append(_decorate(layout, panel, axes, scale=scale))
        if len(panels) > 1:
            _title(layout, panel, axes, scale=scale, highest_bytes=highest)
        layout[axis_key(axes[0])] |= {
            # Bytes share a scale, times do not: a short step beside a long one would be a sliver.
            "range": [opening[number], float(ms_in_step(step.end_ns, step))],
            "unifiedhovertitle": {"text": f"%{{x:.3f}} ms in step {step.step}"},
        }
    return {"data": data, "layout": layout}


def _decorate(layout: Figure, panel: MemoryPanel, axes: tuple[str, str], *, scale: ByteScale) -> Figure:
    """The marker of the peak; its label and the phases go into the layout."""
    marker, peak_label = peak_mark(panel.step, scale=scale, axes=axes)
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


def _highest(step: StepLedger) -> int:
    return int(step.ledger.allocated_bytes.max())
