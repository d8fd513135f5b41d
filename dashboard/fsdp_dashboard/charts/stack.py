"""The ledger of one step as stacked areas: shared by the memory and the unit figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fsdp_dashboard.charts.labels import ByteScale, Figure, unit_label
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_profile.analysis.memory.downsampling import kept_rows
from fsdp_profile.analysis.memory.step_ledger import StepLedger
from fsdp_profile.analysis.spans.recorded import PhaseSpan
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import NO_UNIT, Phase
from fsdp_profile.core.words import label_of

Ints = np.ndarray[Any, np.dtype[np.int64]]

_PHASE_FILL = {
    Phase.FORWARD: "rgba(78,107,232,0.10)",
    Phase.BACKWARD: "rgba(230,145,38,0.10)",
    Phase.OPTIMIZER: "rgba(122,100,176,0.14)",
    Phase.EVALUATION: "rgba(70,160,90,0.12)",
    Phase.CHECKPOINT: "rgba(70,160,160,0.14)",
}
_MARGIN_RATIO = 0.03
_WORTH_RATIO = 0.05
"""Less than this share of the step is not worth hiding."""
LABELLED_RATIO = 0.16
"""A phase shorter than this share of the axis has no room for its name on a phone; its hover text has it."""


def categories_in(steps: list[StepLedger]) -> list[Category]:
    """The categories that hold bytes at some moment, in stacking order."""
    return [c for c in STACK_ORDER if any(step.ledger.by_category[c].any() for step in steps)]


def stack_traces(
    step: StepLedger,
    *,
    scale: ByteScale,
    categories: list[Category],
    axes: tuple[str, str],
    max_rows: int,
) -> list[Figure]:
    """One area per category, bottom first, then a line of the total, whose hover text tells all.

    Values hold until the next event (shape hv) and to the end of the step. Only the first axes have an entry
    in the legend.
    """
    rows = kept_rows(step.ledger.allocated_bytes, step.ledger.t_ns, max_rows=max_rows - 1)
    held = np.append(rows, rows[-1])  # the last value holds to the end of the step
    t_ns = np.append(step.ledger.t_ns[rows], step.end_ns)
    shared: Figure = {
        "type": "scatter",
        "mode": "lines",
        "x": ms_in_step(t_ns, step),
        "xaxis": axes[0],
        "yaxis": axes[1],
    }
    areas = [
        {
            **shared,
            "y": scale.of(step.ledger.by_category[category][held]),
            "name": category.label,
            "legendgroup": category.label,
            "showlegend": axes[0] == "x",
            "stackgroup": "memory",
            "line": {"shape": "hv", "width": 0, "color": category.colour},
            "fillcolor": category.colour,
            "hoverinfo": "skip",  # the total tells it all, without the categories that are empty
        }
        for category in categories
    ]
    total = {
        **shared,
        "y": scale.of(step.ledger.allocated_bytes[held]),
        "name": "allocated",
        "showlegend": False,
        "line": {"shape": "hv", "width": 1, "color": NEUTRAL},
        "customdata": _moments(step, categories, held, t_ns),
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    return [*areas, total]


def ms_in_step(t_ns: Any, step: StepLedger) -> Any:
    """Milliseconds since the start of the step."""
    return (t_ns - step.start_ns) / 1e6


def opening_ms(step: StepLedger) -> float:
    """Where the view of a step opens: shortly before its first phase.

    The time before it, between the steps, can be most of a step: a slow data loader, or the recording itself
    that was written then. It is there, to the left.
    """
    return opens_ns(step.phases, start_ns=step.start_ns, end_ns=step.end_ns) / 1e6


def opens_ns(phases: Sequence[PhaseSpan], *, start_ns: int, end_ns: int) -> int:
    """The same in ns since the start."""
    begins = [span.start_ns for span in phases if span.phase != Phase.OTHER]
    return shortly_before(min(begins) - start_ns if begins else 0, whole_ns=end_ns - start_ns)


def shortly_before(first_ns: int, *, whole_ns: int) -> int:
    """Where a view opens so that what is first seen at `first_ns` is; 0 where little lies before it."""
    opening = first_ns - _MARGIN_RATIO * (whole_ns - first_ns)
    return round(opening) if opening > _WORTH_RATIO * whole_ns else 0


def peak_mark(step: StepLedger, *, scale: ByteScale, axes: tuple[str, str]) -> tuple[Figure, Figure]:
    """The step's highest moment as (trace with a marker, annotation)."""
    row = int(np.argmax(step.ledger.allocated_bytes))
    size_bytes = int(step.ledger.allocated_bytes[row])
    x, y = float(ms_in_step(int(step.ledger.t_ns[row]), step)), float(scale.of(size_bytes))
    in_right_half = x > (opening_ms(step) + ms_in_step(step.end_ns, step)) / 2
    marker = {
        "type": "scatter",
        "mode": "markers",
        "x": [x],
        "y": [y],
        "xaxis": axes[0],
        "yaxis": axes[1],
        "marker": {"size": 8, "symbol": "diamond", "color": NEUTRAL, "line": {"width": 1, "color": "white"}},
        "name": "peak",
        "showlegend": False,
        "hoverinfo": "skip",
    }
    annotation = {
        "x": x,
        "y": y,
        "xref": axes[0],
        "yref": axes[1],
        "text": f"<b>peak {bytes_text(size_bytes)}</b>",
        "showarrow": True,
        "arrowcolor": NEUTRAL,
        "arrowwidth": 1,
        "arrowhead": 0,
        "ax": -22 if in_right_half else 22,
        "ay": -10,
        "xanchor": "right" if in_right_half else "left",
        "font": {"size": 12},
    }
    return marker, annotation


def phase_bands(step: StepLedger, *, axes: tuple[str, str]) -> tuple[list[Figure], list[Figure]]:
    """The phases of a step as (shapes behind the plot, labels at its top)."""
    opens, ends = opening_ms(step), float(ms_in_step(step.end_ns, step))
    return phase_shapes(step.phases, start_ns=step.start_ns, width_ms=ends - opens, axes=axes)


def phase_shapes(
    phases: tuple[PhaseSpan, ...], *, start_ns: int, width_ms: float, axes: tuple[str, str]
) -> tuple[list[Figure], list[Figure]]:
    """The same on an axis of `width_ms` that counts from `start_ns`."""
    shapes, labels = [], []
    for span in phases:
        x0, x1 = (span.start_ns - start_ns) / 1e6, (span.end_ns - start_ns) / 1e6
        fill = next((fill for phase, fill in _PHASE_FILL.items() if phase == span.phase), None)
        if fill is None:
            continue
        area = {"xref": axes[0], "yref": f"{axes[1]} domain", "x0": x0, "x1": x1, "y0": 0, "y1": 1}
        shapes.append({"type": "rect", "layer": "below", "line": {"width": 0}, "fillcolor": fill, **area})
        if x1 - x0 >= LABELLED_RATIO * width_ms:
            labels.append(
                {
                    "x": (x0 + x1) / 2,
                    "y": 1,
                    "xref": axes[0],
                    "yref": f"{axes[1]} domain",
                    "yanchor": "top",
                    "text": label_of(Phase, span.phase),
                    "showarrow": False,
                    "font": {"size": 10},
                    "opacity": 0.8,
                }
            )
    return shapes, labels


def _moments(step: StepLedger, categories: list[Category], rows: Ints, t_ns: Ints) -> list[str]:
    """What was going on at each drawn row, as plotly text: total, phase, unit, categories."""
    name_of = {unit: unit_label(name) for unit, name in step.unit_names.items()} | {NO_UNIT: unit_label(None)}
    units = [name_of.get(unit, f"unit {unit}") for unit in step.units[rows].tolist()]
    held = [(category, step.ledger.by_category[category][rows].tolist()) for category in reversed(categories)]
    texts = []
    totals = step.ledger.allocated_bytes[rows].tolist()
    for i, (total, phase, unit) in enumerate(zip(totals, _phase_at(step.phases, t_ns), units, strict=True)):
        parts = [f"{category.label} {bytes_text(sizes[i])}" for category, sizes in held if sizes[i]]
        texts.append("<br>".join([f"<b>allocated {bytes_text(total)}</b>", f"{phase}, {unit}", *parts]))
    return texts


def _phase_at(phases: tuple[PhaseSpan, ...], t_ns: Ints) -> list[str]:
    starts = np.array([span.start_ns for span in phases] or [0])
    names = [label_of(Phase, span.phase) for span in phases] or [Phase.OTHER.label]
    row = np.maximum(np.searchsorted(starts, t_ns, side="right") - 1, 0)
    return [names[i] for i in row.tolist()]
