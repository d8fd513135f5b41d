"""Charts as SVG: memory over time by category, and what the peak is made of. No scripts, fonts or links in them."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory import Ints, Peak, Timeline, peak, timeline
from fsdp_profile.analysis.ranks import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.thinning import MAX_ROWS, kept_rows
from fsdp_profile.colours import COLOURS, STACK_ORDER
from fsdp_profile.errors import InputError
from fsdp_profile.humanize import bytes_text, ns_text
from fsdp_profile.report.parts import plain
from fsdp_profile.schema import Category

Floats = np.ndarray[Any, np.dtype[np.float64]]

WIDTH, HEIGHT = 960, 360
_LEFT, _TOP, _BOTTOM, _RIGHT = 78, 44, 34, 12
_LEGEND_PX: Final = 18
_FONT: Final = 'font-family="system-ui,sans-serif" font-size="12"'
_TICKS: Final = 5


def chart_svg(run: Run, *, chart: str = "memory", rank: int | None = None) -> str:
    """One chart of a rank, the one with the highest peak by default.

    Raises:
        InputError: no such rank, or no allocator events in it.
    """
    shown = worst_rank(run) if rank is None else rank
    found = peak(run, rank=shown) if shown is not None else None
    if shown is None or found is None:
        raise InputError(f"{run.path}: no allocator events of a training step in it; nothing to draw")
    if chart == "peak":
        return peak_svg(found, title=f"{run.name}: peak {bytes_text(found.allocated_bytes)} on rank {shown}")
    return memory_svg(timeline(run, rank=shown), title=f"{run.name}: memory of rank {shown}", peak=found)


def memory_svg(ledger: Timeline, *, title: str, peak: Peak) -> str:
    """Stacked live bytes by category after each event; bins keep their least and greatest total."""
    rows = kept_rows(ledger.allocated_bytes, max_rows=MAX_ROWS)
    t_ns, top = ledger.t_ns[rows], int(ledger.allocated_bytes.max())
    used = [category for category in STACK_ORDER if ledger.by_category[category].any()]
    legend_rows = -(-len(used) // 5)
    height = HEIGHT + legend_rows * _LEGEND_PX
    x = _scaled(t_ns, int(t_ns[0]), int(t_ns[-1]), _LEFT, WIDTH - _RIGHT)
    floor = height - _BOTTOM
    base: Floats = np.zeros(len(rows))
    parts = []
    for category in used:
        upper = base + ledger.by_category[category][rows]
        path = _area(x, *(_scaled(v, 0, top, floor, _TOP + legend_rows * _LEGEND_PX) for v in (base, upper)))
        parts.append(f'<path d="{path}" fill="{COLOURS[category]}"/>')
        base = upper
    axis = _bytes_axis(top, floor=floor, ceiling=_TOP + legend_rows * _LEGEND_PX) + _time_axis(t_ns, floor=floor)
    at = _scaled(np.array([peak.t_ns]), int(t_ns[0]), int(t_ns[-1]), _LEFT, WIDTH - _RIGHT)[0]
    mark = (
        f'<path d="M{at:.1f} {_TOP + legend_rows * _LEGEND_PX}V{floor}" stroke="#111" stroke-dasharray="3 3"/>'
        f"<title>peak {bytes_text(peak.allocated_bytes)}</title>"
    )
    return _document(title, _legend(used) + "".join(parts) + axis + f"<g>{mark}</g>", height=height)


def peak_svg(found: Peak, *, title: str) -> str:
    """One bar of what is live at the peak, with a line per category under it."""
    sizes = [(c, found.by_category[c]) for c in STACK_ORDER if found.by_category.get(c)]
    scale = (WIDTH - 24) / max(found.allocated_bytes, 1)
    parts, x = [], 12.0
    for number, (category, size) in enumerate(sizes):
        colour = COLOURS[category]
        parts.append(f'<rect x="{x:.2f}" y="36" width="{size * scale:.2f}" height="34" fill="{colour}"/>')
        y = 96 + number * _LEGEND_PX
        text = f"{category}  {bytes_text(size)}  {size / found.allocated_bytes:.1%}"
        parts.append(f'<rect x="12" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="30" y="{y}" {_FONT}>{escape(text)}</text>')
        x += size * scale
    return _document(title, "".join(parts), height=104 + len(sizes) * _LEGEND_PX)


def _document(title: str, body: str, *, height: int) -> str:
    name = escape(plain(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{name}</title><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="12" y="22" {_FONT} font-weight="bold">{name}</text>{body}</svg>\n'
    )


def _legend(used: Sequence[Category]) -> str:
    parts = []
    for number, category in enumerate(used):
        x, y = 12 + (number % 5) * 186, 44 + (number // 5) * _LEGEND_PX
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{COLOURS[category]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}" {_FONT}>{category}</text>')
    return "".join(parts)


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
    for tick in range(_TICKS + 1):
        size, y = top * tick // _TICKS, floor - (floor - ceiling) * tick / _TICKS
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="#888" stroke-opacity=".35"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {_FONT}>{bytes_text(size)}</text>')
    return "".join(parts)


def _time_axis(t_ns: Ints, *, floor: int) -> str:
    span, parts = int(t_ns[-1] - t_ns[0]), []
    for tick in range(_TICKS + 1):
        x = _LEFT + (WIDTH - _RIGHT - _LEFT) * tick / _TICKS
        anchor = "end" if tick == _TICKS else "middle"
        text = ns_text(span * tick // _TICKS)
        parts.append(f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="{anchor}" {_FONT}>{text}</text>')
    return "".join(parts)
