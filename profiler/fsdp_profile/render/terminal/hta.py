"""Our time breakdown beside HTA's, why they differ, and HTA's tables as they are."""

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.hta.comparison import Ours
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.present import breakdown, hta
from fsdp_profile.render.terminal.parts import heading, lines, note, sections
from fsdp_profile.render.terminal.values import sentence_lines, table_grid

MAX_ROWS: Final = 20
"""Rows shown of one table."""


def hta_report(tables: list[HtaTable], ours: Mapping[int, Ours]) -> RenderableType:
    """Both by rank, the reasons for differences, our breakdown in time, then each analysis of HTA."""
    return sections([_comparison(tables, ours), _breakdown(ours), *(_section(table) for table in tables)])


def _comparison(tables: list[HtaTable], ours: Mapping[int, Ours]) -> RenderableType:
    reasons = hta.reasons(tables, ours)
    same = note("HTA and ours are the same to two decimals wherever both have a number")
    grid = table_grid(hta.comparison_table(tables, ours, max_rows=MAX_ROWS))
    parts = [*([grid] if grid else []), *_more(hta.num_ranks(tables, ours))]
    return Group(*parts, sentence_lines(reasons) if reasons else same)


def _breakdown(ours: Mapping[int, Ours]) -> RenderableType:
    found = {rank: our.breakdown for rank, our in sorted(ours.items()) if our.breakdown is not None}
    grid = table_grid(breakdown.ranks_table(found, max_rows=MAX_ROWS))
    if grid is None:
        return Group(heading("Ours"), lines(["not recorded: no kernels in the run"]))
    return Group(grid, *_more(len(ours)), note(breakdown.meaning(found.values())))


def _section(found: HtaTable) -> RenderableType | None:
    if found.error is not None:
        return Group(heading(f"HTA: {found.name}"), lines([f"none: {found.error}"]))
    grid = table_grid(hta.hta_table(found, max_rows=MAX_ROWS))
    return Group(grid, *_more(len(found.rows))) if grid else heading(f"HTA: {found.name}")


def _more(count: int) -> list[RenderableType]:
    return [note(f"and {count - MAX_ROWS:,} more rows")] if count > MAX_ROWS else []
