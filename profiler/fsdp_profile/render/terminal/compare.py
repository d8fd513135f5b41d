"""Runs side by side on one scale: the verdict, the peaks by category, and why."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.compare.peaks import CATEGORY_WORDS, ComparedRun, Comparison, waterfall_text
from fsdp_profile.analysis.compare.replicated import ReplicatedEstimate
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.core.schema import Strategy
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.memory import category_key, unit_cell
from fsdp_profile.render.terminal.palette import WARNING
from fsdp_profile.render.terminal.parts import Cell, Field, Grid, heading, lines, note, sections, shortened
from fsdp_profile.render.terminal.side_by_side import (
    cost_section,
    losses_section,
    phases_section,
    run_names,
    units_section,
)
from fsdp_profile.render.terminal.stack import StackedBar

HEADER_CELLS: Final = 14
"""A run's name above a column of bytes is shortened to this."""


def comparison_report(found: Comparison) -> RenderableType:
    """The whole page."""
    base = next(c for c in found.runs if c.run is found.baseline)
    others = [c for c in found.runs if c is not base]
    return sections(
        [
            Text(verdict(others, base), style="bold"),
            _waterfalls(found, others, base),
            _differences(found.differences),
            _bars(found.runs, base),
            Group(
                heading("Peak by category", f"worst rank of each run; change against {base.run.name}"),
                _table(others, base),
            ),
            phases_section(found),
            units_section(found),
            cost_section(found.runs),
            losses_section(found),
        ]
    )


def _waterfalls(found: Comparison, others: Sequence[ComparedRun], base: ComparedRun) -> RenderableType:
    """What changed at the peak, in words, one line a run, and what the number of shards has to do with it."""
    texts = [f"{c.run.name}: {waterfall_text(c)}" for c in others]
    return Group(
        heading("What changed at the peak", f"against {base.run.name}, largest first"), lines([*texts, *found.divided])
    )


def estimate_report(estimate: ReplicatedEstimate, *, who: str, smaller_bytes: int) -> RenderableType:
    """A run that did not fit, by an estimate from one that did."""
    saved = estimate.peak_bytes - smaller_bytes
    title = (
        f"{who} ran out of memory. ESTIMATE from {plain(estimate.source)}: {who} would need "
        f"{bytes_text(estimate.peak_bytes)} at its peak, {plain(estimate.source)} needs {bytes_text(smaller_bytes)}: "
        f"{ratio_text(saved / estimate.peak_bytes)} less."
    )
    parts = [f"{bytes_text(size)} {CATEGORY_WORDS[c]}" for c, size in estimate.by_category.items()]
    return Group(
        Text(title, style="bold"),
        lines([f"its peak (estimate): {', '.join(parts)}"]),
        note(f"The run's own activations, its states times {estimate.shards} shards, and DDP's buckets."),
    )


def verdict(others: Sequence[ComparedRun], base: ComparedRun) -> str:
    """One sentence on what sharding changed; of several runs, on the one that needs least."""
    several = len(others) > 1
    mine = min(others, key=lambda c: c.peak.allocated_bytes)
    name, base_name = _called(mine, base, several=several), _called(base, mine, several=several)
    needs, base_needs = bytes_text(mine.peak.allocated_bytes), bytes_text(base.peak.allocated_bytes)
    amount, change = bytes_text(abs(mine.saved_bytes)), ratio_text(abs(mine.reduction_ratio))
    if several and mine.saved_bytes <= 0:
        return f"No run needs less than {base_name}: {base_needs} at its peak."
    who = f"Of {len(others) + 1} runs {name} needs least, {needs}" if several else f"{name} needs {needs}"
    where = f"{who} at its peak where {base_name} needs {base_needs}"
    if mine.saved_bytes == 0:
        return f"{where}: no difference."
    if mine.saved_bytes < 0:
        return f"{where}: {change} more, not less ({amount} more per rank)."
    return f"{where}: {change} less ({amount} saved per rank)."


def _called(mine: ComparedRun, other: ComparedRun, *, several: bool) -> str:
    strategy = mine.run.manifest.strategy
    if strategy is Strategy.NONE:
        return plain(mine.run.name)
    if several or strategy == other.run.manifest.strategy:
        return f"{plain(mine.run.name)} ({strategy})"
    return str(strategy)


def _differences(found: Sequence[str]) -> RenderableType | None:
    if not found:
        return None
    return Group(Text("These runs differ in more than their strategy", style="bold"), lines(found, style=WARNING))


def _bars(runs: Sequence[ComparedRun], base: ComparedRun) -> RenderableType:
    scale = max(c.peak.allocated_bytes for c in runs)
    bars = [StackedBar(by_category=c.peak.by_category, scale_bytes=scale) for c in runs]
    fields = [
        Field(header="", cells=bars, justify="left"),
        Field(header="peak", cells=[bytes_text(c.peak.allocated_bytes) for c in runs]),
        Field(header="", cells=["baseline" if c is base else _change(c) for c in runs], justify="left"),
    ]
    return Grid(key=[Field(header="run", cells=run_names(runs), justify="left")], groups=[fields])


def _change(mine: ComparedRun) -> str:
    if mine.saved_bytes == 0:
        return "the same"
    return f"{ratio_text(abs(mine.reduction_ratio))} {'less' if mine.saved_bytes > 0 else 'MORE'}"


def _table(others: Sequence[ComparedRun], base: ComparedRun) -> Grid:
    held = {c for mine in (base, *others) for c in mine.peak.by_category} | {Category.UNKNOWN}
    rows = [c for c in CATEGORIES if c in held]
    names = [plain(c.run.name) for c in (base, *others)]
    columns = [
        [_bytes(base, rows, names)],
        *([_bytes(mine, rows, names), _deltas(mine, rows)] for mine in others),
    ]
    key = category_key(rows, "peak", "rank", "step", "phase", "unit")
    return Grid(key=[*key, *columns[0]], groups=columns[1:], num_totals=5)


def _bytes(mine: ComparedRun, rows: Sequence[Category], names: Sequence[str]) -> Field:
    found = mine.peak
    cells: list[Cell] = [bytes_text(found.by_category.get(c, 0)) for c in rows]
    cells += [bytes_text(found.allocated_bytes), str(found.rank), str(found.step), found.phase]
    header = shortened(plain(mine.run.name), cells=HEADER_CELLS, among=names)
    unit = unit_cell(found.unit_name)
    short = unit if isinstance(unit, str) else shortened(plain(unit.text), cells=HEADER_CELLS)
    return Field(header=header, cells=[*cells, short])


def _deltas(mine: ComparedRun, rows: Sequence[Category]) -> Field:
    changes = [_signed(mine.delta_by_category.get(c, 0)) for c in rows]
    return Field(header="change", cells=[*changes, _signed(-mine.saved_bytes), "", "", "", ""])


def _signed(delta_bytes: int) -> str:
    return "=" if delta_bytes == 0 else f"{'+' if delta_bytes > 0 else ''}{bytes_text(delta_bytes)}"
