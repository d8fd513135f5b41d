"""Runs side by side on one scale: the verdict, the peaks by category, and why."""

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.compare.peaks import Comparison
from fsdp_profile.analysis.compare.replicated import ReplicatedEstimate
from fsdp_profile.present import compare as present
from fsdp_profile.render.terminal.palette import WARNING
from fsdp_profile.render.terminal.parts import heading, lines, note, sections
from fsdp_profile.render.terminal.stack import StackedBar
from fsdp_profile.render.terminal.values import grid_of, sentence_lines, sentence_text, table_grid


def comparison_report(found: Comparison) -> RenderableType:
    """The whole page."""
    units = present.units_table(found, max_rows=present.MAX_UNITS)
    changed = heading("What changed at the peak", f"against {found.baseline.name}, largest first")
    return sections(
        [
            sentence_text(present.verdict(found), style="bold"),
            Group(changed, sentence_lines(present.changes(found))),
            _differences(found),
            _bars(found),
            table_grid(present.categories_table(found)),
            table_grid(present.phases_table(found)),
            table_grid(units),
            table_grid(present.costs_table(found)) if present.has_costs(found) else None,
            _losses(found),
        ]
    )


def estimate_report(found: ReplicatedEstimate, *, who: str, smaller_bytes: int) -> RenderableType:
    """A run that did not fit, by an estimate from one that did."""
    return Group(
        sentence_text(present.estimate(found, who=who, smaller_bytes=smaller_bytes), style="bold"),
        sentence_lines([present.estimate_parts(found)]),
        note(present.estimate_note(found)),
    )


def _differences(found: Comparison) -> RenderableType | None:
    if not found.differences:
        return None
    return Group(Text(present.DIFFER, style="bold"), lines(found.differences, style=WARNING))


def _bars(found: Comparison) -> RenderableType:
    scale = max(c.peak.allocated_bytes for c in found.runs)
    bars = [StackedBar(by_category=c.peak.by_category, scale_bytes=scale) for c in found.runs]
    peaks = present.peaks_table(found)
    run, size, change, *where = peaks.columns
    return Group(
        grid_of(replace(peaks, columns=(run, size, change)), drawn=bars),
        Text(),
        grid_of(replace(peaks, columns=(run, *where))),
    )


def _losses(found: Comparison) -> RenderableType | None:
    recorded = [c for c in found.runs if c.losses is not None]
    if not recorded:
        return None
    by_step = present.losses_table(recorded, baseline=found.baseline.name)
    parts = [
        sentence_lines(map(present.losses_of, runs), style=style)
        for runs, style in (
            ([c for c in recorded if c.losses is not None and c.losses.is_equal], ""),
            ([c for c in recorded if c.losses is not None and not c.losses.is_equal], WARNING),
        )
        if runs
    ]
    return Group(heading(by_step.title, by_step.note), *parts, grid_of(by_step))
