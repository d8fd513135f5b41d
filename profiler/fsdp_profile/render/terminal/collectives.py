"""Collectives of one rank by kind and group, and those of all ranks with their waits and transfers."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.collectives.timeline import CallTotal
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.present import collectives as present
from fsdp_profile.present.clocks import clocks
from fsdp_profile.present.stragglers import matched, never_joined
from fsdp_profile.render.terminal.palette import FAILURE, QUIET
from fsdp_profile.render.terminal.parts import heading
from fsdp_profile.render.terminal.values import sentence_lines, table_grid


def collectives_report(
    found: CollectiveSummary | None, *, rank: int, per_step: StepTraffic | None = None
) -> RenderableType:
    """Calls, bytes and time by kind, the exposed part of the whole, and what a step moves."""
    if found is None:
        return Group(heading("Collectives", f"rank {rank}"), Text("not recorded", style=QUIET))
    grid = table_grid(present.kinds_table(found, rank=rank))
    sentences = [present.exposed_time(found, rank=rank), present.traffic(per_step, rank=rank)]
    return Group(*([grid, Text()] if grid else []), sentence_lines(sentences))


def groups_report(totals: Sequence[CallTotal], *, rank: int) -> RenderableType | None:
    """Calls by process group (totals by BY_GROUP); None without any."""
    note = f"rank {rank}; bandwidths are medians over matched collectives"
    return table_grid(present.group_totals_table(totals, note=note))


def cross_rank_report(found: CrossRank | None) -> RenderableType | None:
    """Matched collectives of all ranks by kind, and what was not matched; None where one rank is all there is."""
    if found is None or found.num_matched + found.num_unmatched == 0 or found.is_single_rank:
        return None
    grid = table_grid(present.cross_rank_table(found)) or heading("Cross-rank")
    parts: list[RenderableType] = [grid, Text(), sentence_lines([matched(found), clocks(found.clock)])]
    if found.never_joined:
        parts.append(sentence_lines(never_joined(found.never_joined), style=FAILURE))
    return Group(*parts)
