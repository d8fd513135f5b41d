"""What web/paint.js draws: panels of one or several runs on one scale of bytes, packed.

Names go as they are: the script sets them as text, never as HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.charts.palette import LEVEL_COLOURS, LEVELS
from fsdp_dashboard.charts.panels import HEADROOM, TELLING_RATIO
from fsdp_dashboard.charts.stack import opens_ns, shortly_before
from fsdp_dashboard.ledger_canvas.wire import Ints, packed
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.memory.pyramid import Level
from fsdp_profile.analysis.memory.time_window import BigBlock, Detail, TimeWindow
from fsdp_profile.analysis.spans.recorded import PhaseSpan
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text
from fsdp_profile.core.schema import NO_UNIT, Phase
from fsdp_profile.core.words import label_of
from fsdp_profile.present.memory import where as where_is

MAX_RATIO: Final = 4
"""A level above this many times the highest allocated bytes is named, not drawn: the categories would be slivers."""
PANEL_PX: Final = 280
SINGLE_PX: Final = 400
_LABEL_RATIO: Final = 0.12
"""Of the highest line: what the label of a peak takes."""
_VISIBLE_RATIO: Final = 0.01
"""Of the peak: less is no line worth opening a recording with."""
_SAMPLED: Final = "device used"

Window = tuple[int, int]
"""From and to, in ns since a panel's start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerPanel:
    """One run's time window."""

    title: str
    """Name of the run, as it is."""
    time_window: TimeWindow


def ledger_data(panels: Sequence[LedgerPanel], *, windows: Sequence[Window | None] = ()) -> dict[str, Any]:
    """Everything that the panels show; `windows` is what is in view at first, None: where a panel opens."""
    highest = max(panel.time_window.peak.allocated_bytes for panel in panels)
    drawn, above = ledger_names(panels), levels_above(panels)
    top = max([highest, *(_most(panels, name) for name in drawn)])
    scale = byte_scale(top)
    whole = panels[0].time_window.step is None
    steps = {panel.time_window.step for panel in panels}
    x_title = (
        "s since the recording began" if whole else f"ms in step {steps.pop()}" if len(steps) == 1 else "ms in step"
    )
    shown = [*windows, *[None] * (len(panels) - len(windows))]
    return {
        "axis_bytes": max(top * HEADROOM, 1.0),
        "unit": {"name": scale.name, "bytes": scale.unit_bytes},
        "time_unit": {"ns": 1e9, "text": "s"} if whole else {"ns": 1e6, "text": "ms"},
        "x_title": x_title,
        "height_px": SINGLE_PX if len(panels) == 1 else PANEL_PX,
        "highest_bytes": highest,
        "highest_text": f"highest of all: {bytes_text(highest)}" if len(panels) > 1 else "",
        "categories": [[c.value, c.colour, c.label] for c in categories_in(panels)],
        "levels": [[name, LEVEL_COLOURS[name], name == _SAMPLED] for name in drawn],
        "levels_above": [[name, LEVEL_COLOURS[name], name == _SAMPLED] for name in above],
        "panels": [_panel(panel, drawn, highest_bytes=highest, top_bytes=top) for panel in panels],
        "windows": [None if window is None else list(window) for window in shown],
    }


def detail_data(panel: LedgerPanel, found: Detail, *, number: int, window: Window) -> dict[str, Any]:
    """Finer rows of a part of a panel."""
    start = panel.time_window.start_ns
    return {
        "key": f"{number}:{window[0]}:{window[1]}",
        "panel": number,
        "from": window[0],
        "to": window[1],
        "phases": _phases(found.phases, start),
        "blocks": _blocks(found.blocks, panel.time_window),
        "packed": _rows(found.level, found.units, start),
    }


def categories_in(panels: Sequence[LedgerPanel]) -> list[Category]:
    """The categories that hold bytes at some row, in stacking order."""
    ledgers = [panel.time_window.level.ledger for panel in panels]
    return [c for c in STACK_ORDER if any(ledger.by_category[c].any() for ledger in ledgers)]


def levels_above(panels: Sequence[LedgerPanel]) -> dict[str, int]:
    """The levels far above the figure, with their highest bytes: named in text, not drawn."""
    highest = max(panel.time_window.peak.allocated_bytes for panel in panels)
    most = {name: _most(panels, name) for name in LEVELS}
    return {name: size for name, size in most.items() if size > MAX_RATIO * highest}


def legend_of(panels: Sequence[LedgerPanel]) -> dict[str, Any]:
    """The entries of the legend, as charts/legend.py reads a figure's."""
    data = ledger_names(panels)
    categories = [{"name": c.label, "fillcolor": c.colour} for c in categories_in(panels)]
    lines = [{"name": name, "legend": "legend2", "line": {"color": LEVEL_COLOURS[name]}} for name in data]
    return {"data": [*categories, *lines]}


def ledger_names(panels: Sequence[LedgerPanel]) -> list[str]:
    """The levels that are drawn."""
    highest = max(panel.time_window.peak.allocated_bytes for panel in panels)
    return [name for name in LEVELS if 0 < _most(panels, name) <= MAX_RATIO * highest]


def _panel(panel: LedgerPanel, drawn: list[str], *, highest_bytes: int, top_bytes: int) -> dict[str, Any]:
    found = panel.time_window
    start, peak = found.start_ns, found.peak
    where = "whole recording" if found.step is None else f"step {found.step}"
    levels = [_highest(found, name) for name in drawn]
    return {
        "title": panel.title,
        "about": f"rank {found.rank}, {where}",
        "alt": _alt(panel.title, found, where),
        "of_what": "" if found.step is None else f"in step {found.step}",
        "begin": 0,
        "end": found.end_ns - start,
        "opens": _opens(found),
        "packed": _rows(found.level, found.units, start),
        "peaks": _step_peaks(found.step_peaks) if found.step_peaks else None,
        "phases": _phases(found.phases, start),
        "steps": [[number, a - start, b - start] for number, a, b in found.steps],
        "units": {str(unit): unit_text(name) for unit, name in found.unit_names.items()},
        "device": [[t - start, size] for t, size in found.device],
        "blocks": _blocks(found.blocks, found),
        "names_highest": peak.allocated_bytes <= TELLING_RATIO * highest_bytes,
        "peak": {
            "t": peak.t_ns - start,
            "bytes": peak.allocated_bytes,
            "text": f"peak {bytes_text(peak.allocated_bytes)}",
            "clear_bytes": _clear_of(levels, peak.allocated_bytes, room_bytes=int(_LABEL_RATIO * top_bytes)),
        },
    }


def _opens(found: TimeWindow) -> list[int]:
    """A step opens shortly before its first phase, a recording before anything worth drawing was allocated."""
    end = found.end_ns - found.start_ns
    if found.step is None:
        ledger = found.level.ledger
        first = int(np.argmax(ledger.allocated_bytes >= _VISIBLE_RATIO * found.peak.allocated_bytes))
        return [shortly_before(int(ledger.t_ns[first]) - found.start_ns, whole_ns=end), end]
    return [opens_ns(found.phases or (), start_ns=found.start_ns, end_ns=found.end_ns), end]


def _rows(level: Level, units: Ints, start_ns: int) -> dict[str, Any]:
    ledger = level.ledger
    columns = {"t": ledger.t_ns - start_ns, "total": ledger.allocated_bytes, "unit": units}
    columns |= {str(category): live for category, live in ledger.by_category.items() if live.any()}
    for name, values in (("active", level.active_bytes), ("reserved", level.reserved_bytes)):
        if values is not None:
            columns[name] = values
    return {**packed(columns), "bin_events": level.bin_events}


def _step_peaks(peaks: Sequence[Peak]) -> dict[str, Any]:
    held = {category for peak in peaks for category in peak.by_category}
    columns = {
        "step": np.array([peak.step for peak in peaks]),
        "total": np.array([peak.allocated_bytes for peak in peaks]),
        **{str(c): np.array([peak.by_category.get(c, 0) for peak in peaks]) for c in STACK_ORDER if c in held},
    }
    return {**packed(columns), "bin_events": 1}


def _phases(phases: Sequence[PhaseSpan] | None, start_ns: int) -> list[list[Any]] | None:
    if phases is None:  # asked for when fewer are in view
        return None
    return [
        [span.phase, span.start_ns - start_ns, span.end_ns - start_ns, label_of(Phase, span.phase)] for span in phases
    ]


def _blocks(blocks: Sequence[BigBlock], found: TimeWindow) -> list[list[Any]]:
    """Largest first; a block that was not freed ends with the time window."""
    start, end = found.start_ns, found.end_ns
    return [[b.start_ns - start, min(b.end_ns, end + 1) - start, _block_text(b, found)] for b in blocks]


def _block_text(block: BigBlock, found: TimeWindow) -> str:
    name = None if block.unit == NO_UNIT else found.unit_names.get(block.unit)
    parts = [
        f"{bytes_text(block.size_bytes)} {label_of(Category, block.category)}",
        block.name or (unit_text(name) if name is not None else ""),
        block.operator,
    ]
    return ", ".join(part for part in parts if part)


def _alt(title: str, found: TimeWindow, where: str) -> str:
    peak = found.peak
    parts = ", ".join(f"{category.label} {bytes_text(size)}" for category, size in list(peak.by_category.items())[:3])
    return (
        f"Allocated bytes of {title} by category, rank {found.rank}, {where}: "
        f"peak {bytes_text(peak.allocated_bytes)} after {ns_text(peak.t_ns - found.start_ns)} in "
        f"{where_is(peak).text}, most of it {parts}."
    )


def _highest(found: TimeWindow, name: str) -> int:
    if name == _SAMPLED:
        return max((size for _, size in found.device), default=0)
    values = found.level.active_bytes if name == "active" else found.level.reserved_bytes
    return 0 if values is None else int(values.max(initial=0))


def _most(panels: Sequence[LedgerPanel], name: str) -> int:
    return max(_highest(panel.time_window, name) for panel in panels)


def _clear_of(levels: list[int], peak_bytes: int, *, room_bytes: int) -> int:
    """Above which line the label of the peak has room."""
    found = peak_bytes
    for size_bytes in sorted(levels):
        if 0 < size_bytes - found < room_bytes:
            found = size_bytes
    return found
