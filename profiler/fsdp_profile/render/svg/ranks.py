"""More charts as SVG: the peak of each rank, and when each unit was gathered in the step of the peak."""

from html import escape
from typing import Final

import pyarrow as pa

from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import phase_spans, spans_between
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.core.schema import SpanKind
from fsdp_profile.core.text import plain
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.render.svg.frame import FONT, WIDTH, document, legend, legend_height, time_axis
from fsdp_profile.render.terminal.parts import shortened

MAX_RANKS: Final = 64
MAX_UNITS: Final = 64
_ROW_PX: Final = 20
_NAME_PX: Final = 150
_NAME_CELLS: Final = 20
_VALUE_PX: Final = 90


def ranks_svg(run: Run) -> str:
    """A stacked bar per rank at its peak, on one scale.

    Raises:
        InputError: no allocator events.
    """
    peaks = [found.peak for found in rank_summaries(run) if found.peak is not None]
    top = max((peak.allocated_bytes for peak in peaks), default=0)
    if not top:
        raise InputError(f"{run.path}: no allocator events of a training step in it; nothing to draw")
    shown = peaks[:MAX_RANKS]
    used = [c for c in STACK_ORDER if any(peak.by_category.get(c) for peak in shown)]
    begin = 44 + legend_height(used)
    parts = [_bar(peak, top=top, y=begin + number * _ROW_PX) for number, peak in enumerate(shown)]
    more = f" (the first {MAX_RANKS} of {len(peaks)} ranks)" if len(peaks) > MAX_RANKS else ""
    title = f"{run.name}: peak of each rank{more}"
    return document(title, legend(used) + "".join(parts), height=begin + len(shown) * _ROW_PX + 10)


def _bar(peak: Peak, *, top: int, y: int) -> str:
    scale = (WIDTH - _NAME_PX - _VALUE_PX) / top
    parts, x = [f'<text x="12" y="{y + 13}" {FONT}>rank {peak.rank}</text>'], float(_NAME_PX)
    for category in STACK_ORDER:
        width = peak.by_category.get(category, 0) * scale
        if width:
            parts.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="15" fill="{category.colour}"/>')
            x += width
    parts.append(f'<text x="{x + 6:.1f}" y="{y + 13}" {FONT}>{bytes_text(peak.allocated_bytes)}</text>')
    return "".join(parts)


def units_svg(run: Run, peak: Peak) -> str:
    """When the parameters of each unit were gathered, in the step of a peak.

    Raises:
        InputError: no unit was gathered in it, or its phases were not recorded.
    """
    phases = phase_spans(run, rank=peak.rank, step=peak.step)
    if not phases:
        raise InputError(f"{run.path}: no phases of step {peak.step} in it; nothing to draw")
    start, end = phases[0].start_ns, phases[-1].end_ns
    spans = spans_between(run, rank=peak.rank, start_ns=start, end_ns=end)
    spans = spans.filter(pa.array(strings(spans, "kind") == SpanKind.UNSHARDED.value))
    units = sorted(set(numbers(spans, "unit").tolist()))[:MAX_UNITS]
    if not units:
        raise InputError(f"{run.path}: no unit was gathered in step {peak.step}; nothing to draw")
    scale = (WIDTH - _NAME_PX - 12) / max(end - start, 1)
    floor = 44 + len(units) * _ROW_PX
    rows = {unit: 44 + number * _ROW_PX for number, unit in enumerate(units)}
    names = dict(zip(numbers(spans, "unit").tolist(), spans.column("name").to_pylist(), strict=True))
    parts = [_name(names[unit], y) for unit, y in rows.items()]
    for unit, begin, stop in zip(*(numbers(spans, c).tolist() for c in ("unit", "start_ns", "end_ns")), strict=True):
        if unit in rows:
            x, width = _NAME_PX + max(begin - start, 0) * scale, (min(stop, end) - max(begin, start)) * scale
            colour = Category.UNSHARDED_PARAM.colour
            parts.append(f'<rect x="{x:.1f}" y="{rows[unit]}" width="{width:.1f}" height="15" fill="{colour}"/>')
    mark = _NAME_PX + (peak.t_ns - start) * scale
    parts.append(f'<path d="M{mark:.1f} 40V{floor}" stroke="#111" stroke-dasharray="3 3"/>')
    parts.append(time_axis(end - start, left=_NAME_PX, floor=floor))
    title = f"{run.name}: units gathered in step {peak.step} of rank {peak.rank}; the line is the peak"
    return document(title, "".join(parts), height=floor + 28)


def _name(name: str, y: int) -> str:
    text = escape(shortened(plain(unit_text(name)), cells=_NAME_CELLS))
    return f'<text x="12" y="{y + 13}" {FONT}>{text}</text>'
