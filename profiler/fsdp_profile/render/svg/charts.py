"""Charts as SVG: memory over time by category, the peak, ranks, units. No scripts, fonts or links in them."""

from html import escape
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory.downsampling import MAX_ROWS, kept_rows
from fsdp_profile.analysis.memory.ledger import Peak, Timeline, peak, timeline_at
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import STACK_ORDER
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.ingest.tables import numbers
from fsdp_profile.render.svg.frame import (
    FONT,
    LEGEND_PX,
    RIGHT,
    TICKS,
    WIDTH,
    document,
    legend,
    legend_height,
    time_axis,
)
from fsdp_profile.render.svg.ranks import ranks_svg, units_svg

Floats = np.ndarray[Any, np.dtype[np.float64]]

HEIGHT: Final = 360
_LEFT, _TOP, _BOTTOM = 78, 44, 34


def chart_svg(run: Run, *, chart: str = "memory", rank: int | None = None) -> str:
    """One chart of a rank, the one with the highest peak by default.

    Raises:
        InputError: no such rank, or no allocator events in it.
    """
    shown = worst_rank(run) if rank is None else rank
    found = peak(run, rank=shown) if shown is not None else None
    if shown is None or found is None:
        raise InputError(f"{run.path}: no allocator events of a training step in it; nothing to draw")
    if chart == "ranks":
        return ranks_svg(run)
    if chart == "units":
        return units_svg(run, found)
    if chart == "peak":
        return peak_svg(found, title=f"{run.name}: peak {bytes_text(found.allocated_bytes)} on rank {shown}")
    samples = run.table("memory_samples", rank=shown)
    rows = kept_rows(numbers(samples, "allocated_bytes"), numbers(samples, "t_ns"), max_rows=MAX_ROWS)
    ledger = timeline_at(run, rank=shown, events=rows)
    return memory_svg(ledger, title=f"{run.name}: memory of rank {shown}", peak=found)


def memory_svg(ledger: Timeline, *, title: str, peak: Peak) -> str:
    """Stacked live bytes by category after each event, downsampled: a bin keeps its least, greatest and last total."""
    rows = kept_rows(ledger.allocated_bytes, ledger.t_ns, max_rows=MAX_ROWS)
    t_ns, top = ledger.t_ns[rows], int(ledger.allocated_bytes.max())
    used = [category for category in STACK_ORDER if ledger.by_category[category].any()]
    ceiling = _TOP + legend_height(used)
    height = HEIGHT + legend_height(used)
    x = _scaled(t_ns, int(t_ns[0]), int(t_ns[-1]), _LEFT, WIDTH - RIGHT)
    floor = height - _BOTTOM
    base: Floats = np.zeros(len(rows))
    parts = []
    for category in used:
        upper = base + ledger.by_category[category][rows]
        path = _area(x, *(_scaled(v, 0, top, floor, ceiling) for v in (base, upper)))
        parts.append(f'<path d="{path}" fill="{category.colour}"/>')
        base = upper
    axis = _bytes_axis(top, floor=floor, ceiling=ceiling) + time_axis(int(t_ns[-1] - t_ns[0]), left=_LEFT, floor=floor)
    at = _scaled(np.array([peak.t_ns]), int(t_ns[0]), int(t_ns[-1]), _LEFT, WIDTH - RIGHT)[0]
    mark = (
        f'<path d="M{at:.1f} {ceiling}V{floor}" stroke="#111" stroke-dasharray="3 3"/>'
        f"<title>peak {bytes_text(peak.allocated_bytes)}</title>"
    )
    return document(title, legend(used) + "".join(parts) + axis + f"<g>{mark}</g>", height=height)


def peak_svg(found: Peak, *, title: str) -> str:
    """One bar of what is live at the peak, with a line per category under it."""
    sizes = [(c, found.by_category[c]) for c in STACK_ORDER if found.by_category.get(c)]
    scale = (WIDTH - 24) / max(found.allocated_bytes, 1)
    parts, x = [], 12.0
    for number, (category, size) in enumerate(sizes):
        colour = category.colour
        parts.append(f'<rect x="{x:.2f}" y="36" width="{size * scale:.2f}" height="34" fill="{colour}"/>')
        y = 96 + number * LEGEND_PX
        text = f"{category.label}  {bytes_text(size)}  {size / found.allocated_bytes:.1%}"
        parts.append(f'<rect x="12" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="30" y="{y}" {FONT}>{escape(text)}</text>')
        x += size * scale
    return document(title, "".join(parts), height=104 + len(sizes) * LEGEND_PX)


def _area(x: Floats, lower: Floats, upper: Floats) -> str:
    """Between two lines that hold from event to event; points that change nothing are left out."""
    there = _held(x, upper)
    back = _held(x, lower)
    return "M" + "L".join(there) + "L" + "L".join(reversed(back)) + "Z"


def _held(x: Floats, y: Floats) -> list[str]:
    points = [f"{x[0]:.1f} {y[0]:.1f}"]
    for i in range(1, len(x)):
        if y[i] != y[i - 1]:
            points += [f"{x[i]:.1f} {y[i - 1]:.1f}", f"{x[i]:.1f} {y[i]:.1f}"]
    return [*points, f"{x[-1]:.1f} {y[-1]:.1f}"]


def _scaled(values: Any, low: int, high: int, begin: float, end: float) -> Floats:
    found: Floats = begin + (values - low) * (end - begin) / max(high - low, 1)
    return found


def _bytes_axis(top: int, *, floor: int, ceiling: int) -> str:
    parts = []
    for tick in range(TICKS + 1):
        size, y = top * tick // TICKS, floor - (floor - ceiling) * tick / TICKS
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#888" stroke-opacity=".35"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {FONT}>{bytes_text(size)}</text>')
    return "".join(parts)
