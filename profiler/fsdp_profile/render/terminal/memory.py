"""The memory of one rank: its peak and what it is made of, step by step, and the blocks that fill it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.analysis.memory.ledger import Conservation, Peak
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.palette import FAILURE, WARNING
from fsdp_profile.render.terminal.parts import Field, Grid, Name, heading, note, sections, shortened
from fsdp_profile.render.terminal.stack import StackedBar, Swatch, legend, with_unknown
from fsdp_profile.render.terminal.waterfall import waterfall_report

MAX_STEPS: Final = 12
"""Steps shown one by one; of more, the highest."""
MAX_BLOCKS: Final = 15
NAME_CELLS: Final = 48
"""A unit's name within a sentence is shortened to this."""
NO_PEAK: Final = "Peak: not recorded (no allocator events of a training step)"


def where(found: Peak) -> str:
    """Phase, step and unit of a peak, as the end of a sentence."""
    place = f"{found.phase} of step {found.step}"
    if found.unit_name is None:
        return place
    return f"{place}, unit {shortened(plain(unit_text(found.unit_name)), cells=NAME_CELLS)} at work"


def composition(found: Peak | None, *, title: str = "Peak") -> RenderableType:
    """The peak: where it is, a bar of what it is made of, and the legend; `title` for another moment than the peak."""
    if found is None:
        return Text(NO_PEAK, style=WARNING)
    title = f"{title} {bytes_text(found.allocated_bytes)} allocated on rank {found.rank}"
    bar = StackedBar(by_category=found.by_category, scale_bytes=found.allocated_bytes)
    return Group(heading(title, where(found)), bar, Text(), legend(found.by_category))


def told_apart(
    summary: RankSummary, step_peaks: Sequence[Peak], *, device_total_bytes: int | None
) -> RenderableType | None:
    """The same rank's other high-water marks: set-up, first step, what the allocator and the device held; or None."""
    first = step_peaks[0] if step_peaks else None
    before = "before the first forward"
    if summary.peak is not None and (summary.setup_peak_bytes or 0) > summary.peak.allocated_bytes:
        before += ": higher than in training"
    rows = [("set-up", summary.setup_peak_bytes, before)]
    if first is not None:
        rows += [
            (
                f"step {first.step}",
                first.allocated_bytes,
                "the first one recorded" if first.step else "the first",
            )
        ]
    if summary.peak is not None:
        rows += [("training", summary.peak.allocated_bytes, f"step {summary.peak.step}: the peak above")]
    held = (
        ("reserved", summary.reserved_peak_bytes, "held by the caching allocator"),
        ("device used", summary.device_used_peak_bytes, "by every process on the device"),
        ("device size", device_total_bytes, ""),
    )
    rows += [row for row in held if row[1] is not None]
    if all(size is None for _, size, _ in rows):
        return None
    grid = Grid(
        key=[Field(header="mark", cells=[word for word, _, _ in rows], justify="left")],
        groups=[
            [Field(header="bytes", cells=[bytes_text(size) for _, size, _ in rows])],
            [Field(header="", cells=[meaning for _, _, meaning in rows], justify="left")],
        ],
    )
    return Group(heading("High-water marks", f"rank {summary.rank}"), grid)


def memory_report(
    step_peaks: Sequence[Peak],
    *,
    peak: Peak | None,
    blocks: Any,
    unit_names: Mapping[int, str],
    law: Conservation | None,
    device: Waterfall | None = None,
    phases: Mapping[str, Peak] = MappingProxyType({}),
) -> RenderableType:
    """Everything about the memory of one rank.

    Args:
        step_peaks: the peak of every recorded training step, in order.
        peak: the highest of them.
        blocks: rows of `allocations` live at that peak, largest first; None when they could not be read.
        unit_names: unit number -> name.
        law: how well the ledger adds up; None when it could not be read.
        device: what the allocator and the device held at that peak; None where not recorded.
        phases: the peak of each phase.
    """
    return sections(
        [
            composition(peak),
            waterfall_report(device),
            _steps(step_peaks) if step_peaks else None,
            _phases(phases) if phases else None,
            _blocks(blocks, peak, unit_names) if blocks is not None and peak is not None else None,
            ledger(law) if law is not None and law.num_events else None,
        ]
    )


def ledger(law: Conservation) -> Text:
    """Whether the categories sum to the allocator's own total."""
    wrong = law.category_errors + (law.reported_errors or 0)
    own = "" if law.reported_errors is not None else "; the allocator's own total was not recorded"
    if not wrong:
        return note(f"The ledger adds up at all {law.num_events:,} allocator events{own}.")
    return Text(
        f"The ledger does not add up: of {law.num_events:,} allocator events, the categories miss the sum at "
        f"{law.category_errors:,}, the allocator's own total differs at {law.reported_errors or 0:,}{own}.",
        style=FAILURE,
    )


def _steps(step_peaks: Sequence[Peak]) -> RenderableType:
    shown = _highest(step_peaks)
    left_out = len(step_peaks) - len(shown)
    scale = max(p.allocated_bytes for p in shown)
    bars = Grid(
        key=[Field(header="step", cells=[str(p.step) for p in shown])],
        groups=[
            [
                Field(header="peak", cells=[bytes_text(p.allocated_bytes) for p in shown]),
                Field(header="phase", cells=[p.phase for p in shown], justify="left"),
                Field(header="unit", cells=[unit_cell(p.unit_name) for p in shown], justify="left"),
                Field(
                    header="",
                    cells=[StackedBar(by_category=p.by_category, scale_bytes=scale) for p in shown],
                    justify="left",
                ),
            ]
        ],
    )
    remark = f"the {len(shown)} highest of {len(step_peaks)}" if left_out else "all on one scale"
    return Group(heading("Peak of every step", remark), bars, Text(), _matrix(shown))


def _phases(peaks: Mapping[str, Peak]) -> RenderableType:
    scale = max(p.allocated_bytes for p in peaks.values())
    bars = [StackedBar(by_category=p.by_category, scale_bytes=scale) for p in peaks.values()]
    largest = [str(next(iter(p.by_category), "")) for p in peaks.values()]
    grid = Grid(
        key=[Field(header="phase", cells=list(peaks), justify="left")],
        groups=[
            [
                Field(header="peak", cells=[bytes_text(p.allocated_bytes) for p in peaks.values()]),
                Field(header="step", cells=["" if p.step < 0 else str(p.step) for p in peaks.values()]),
                Field(header="mostly", cells=largest, justify="left"),
                Field(header="", cells=bars, justify="left"),
            ]
        ],
    )
    return Group(heading("Peak of every phase", "over the training steps; SETUP before them"), grid)


def _matrix(shown: Sequence[Peak]) -> Grid:
    """Categories down, steps across."""
    held = {category for p in shown for category in p.by_category}
    rows = list(with_unknown({category: 0 for category in CATEGORIES if category in held}))
    steps = [
        Field(
            header=f"step {p.step}",
            cells=[bytes_text(p.by_category.get(c, 0)) for c in rows] + [bytes_text(p.allocated_bytes)],
        )
        for p in shown
    ]
    return Grid(key=category_key(rows), groups=[[field] for field in steps], num_totals=1)


def category_key(rows: Sequence[Category], *totals: str) -> list[Field]:
    """Swatch and name of categories, as the first two fields of a grid; one total unless more are named."""
    last = totals or ("all",)
    return [
        Field(header="", cells=[*map(Swatch, rows), *("" for _ in last)]),
        Field(header="category", cells=[*map(str, rows), *last], justify="left"),
    ]


def unit_cell(name: str | None) -> Name | str:
    """A unit's name in a table; a dash where no unit is at work."""
    return "-" if name is None else Name(unit_text(name))


def _blocks(blocks: Any, peak: Peak, unit_names: Mapping[int, str]) -> RenderableType:
    rows = blocks.slice(0, MAX_BLOCKS).to_pylist()
    share = sum(row["size_bytes"] for row in rows) / peak.allocated_bytes
    grid = Grid(
        key=[Field(header="bytes", cells=[bytes_text(row["size_bytes"]) for row in rows])],
        groups=[
            [
                Field(header="category", cells=[row["category"] for row in rows], justify="left"),
                Field(
                    header="unit",
                    cells=[unit_cell(unit_names.get(row["unit"])) for row in rows],
                    justify="left",
                ),
                Field(header="name", cells=[Name(row["name"] or "-") for row in rows], justify="left"),
                Field(header="operator", cells=[Name(row["operator"] or "-") for row in rows], justify="left"),
            ]
        ],
    )
    remark = f"{len(rows)} of {blocks.num_rows:,} live blocks, {ratio_text(share)} of the peak"
    return Group(heading("Biggest blocks at the peak", remark), grid)


def _highest(step_peaks: Sequence[Peak]) -> list[Peak]:
    by_size = sorted(step_peaks, key=lambda p: -p.allocated_bytes)[:MAX_STEPS]
    return [p for p in step_peaks if p in by_size]
