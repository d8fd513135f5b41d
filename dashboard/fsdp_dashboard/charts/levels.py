"""Lines over the stack of a step: what the allocator and the device held, where that was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_dashboard.charts.labels import ByteScale, Figure
from fsdp_dashboard.charts.palette import LEVEL_COLOURS, LEVELS
from fsdp_profile.analysis.steps import StepLedger
from fsdp_profile.analysis.thinning import kept_rows
from fsdp_profile.humanize import bytes_text

Ints = np.ndarray[Any, np.dtype[np.int64]]

MAX_RATIO: Final = 4
"""A level above this many times the highest allocated bytes is told, not drawn: the categories would be slivers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One recorded quantity over a step."""

    name: str
    t_ns: Ints
    size_bytes: Ints


def recorded_levels(samples: pa.Table) -> list[Level]:
    """The levels that were recorded, lowest first.

    `samples` has a column t_ns and for each level a nullable one, such as device_used_bytes.
    """
    found = []
    for name in LEVELS:
        column = samples.column(f"{name.replace(' ', '_')}_bytes")
        known = samples.filter(column.is_valid())
        if known.num_rows:
            size = known.column(f"{name.replace(' ', '_')}_bytes")
            found.append(Level(name=name, t_ns=known.column("t_ns").to_numpy(), size_bytes=size.to_numpy()))
    return found


def drawn_levels(levels: list[Level], *, highest_bytes: int) -> list[Level]:
    """Those that fit above the highest allocated bytes."""
    return [level for level in levels if level.size_bytes.max() <= MAX_RATIO * highest_bytes]


def level_trace(
    level: Level, step: StepLedger, *, scale: ByteScale, axes: tuple[str, str], max_rows: int, in_legend: bool
) -> Figure:
    """A line; the allocator's hold from event to event, NVML's samples are marked and only joined."""
    rows = kept_rows(level.size_bytes, max_rows=max_rows - 1)
    t_ns, size = level.t_ns[rows], level.size_bytes[rows]
    is_sampled = level.name == "device used"
    if not is_sampled:
        t_ns, size = np.append(t_ns, step.end_ns), np.append(size, size[-1])
    line = {"color": LEVEL_COLOURS[level.name], "width": 2, "dash": "dot" if is_sampled else "solid"}
    return {
        "type": "scatter",
        "mode": "lines+markers" if is_sampled else "lines",
        "x": (t_ns - step.start_ns) / 1e6,
        "y": scale.of(size),
        "xaxis": axes[0],
        "yaxis": axes[1],
        "name": level.name,
        "legend": "legend2",
        "legendgroup": level.name,
        "showlegend": in_legend,
        "line": line if is_sampled else {**line, "shape": "hv"},
        "marker": {"color": LEVEL_COLOURS[level.name], "size": 5},
        "hoverinfo": "skip",  # the total tells it
    }


def level_texts(levels: Sequence[Level], t_ns: Ints) -> list[list[str]]:
    """What each level was at some moments, as plotly text, highest first; NVML's is the last sample before."""
    texts: list[list[str]] = [[] for _ in t_ns]
    for level in reversed(levels):
        row = np.searchsorted(level.t_ns, t_ns, side="right") - 1
        for text, at in zip(texts, row.tolist(), strict=True):
            if at >= 0:
                text.append(f"{level.name} {bytes_text(int(level.size_bytes[at]))}")
    return texts
