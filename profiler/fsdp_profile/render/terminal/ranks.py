"""Ranks side by side: peaks, processes, how each ended, and which rank made the others wait."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present import endings as present_endings
from fsdp_profile.present import ranks as present
from fsdp_profile.present.stragglers import late_rank, never_joined, stragglers_table
from fsdp_profile.render.terminal.palette import FAILURE, QUIET
from fsdp_profile.render.terminal.parts import heading, note, sections
from fsdp_profile.render.terminal.values import fact_lines, sentence_lines, sentence_text, table_grid

MANY_RANKS: Final = 16
"""More than this are shown by minimum, median, maximum and the worst."""
WORST: Final = 5


def rank_peaks(ranks: Sequence[RankSummary]) -> RenderableType | None:
    """The peaks on the overview: a line when they are the same, a short table when they differ."""
    known = present.worst_peaks(ranks, num=len(ranks))
    if len(known) < 2:
        return None
    same = present.same_peaks(known)
    if same is not None:
        return sentence_text(same, style=QUIET)
    highest, lowest = known[0].peak, known[-1].peak
    spread = highest.allocated_bytes - lowest.allocated_bytes if highest and lowest else 0
    apart = f"{bytes_text(spread)} apart"
    if len(known) <= MANY_RANKS:
        in_order = [one for one in ranks if one.peak is not None]
        return table_grid(present.peaks_table(in_order, title="Peaks of the ranks", note=apart))
    worst = table_grid(present.peaks_table(known[:WORST], title=""))
    title = note(f"the {WORST} highest of {len(known)}")
    parts = [heading("Peaks of the ranks", apart), fact_lines(present.peak_spread(known)), Text(), title]
    return Group(*parts, *([worst] if worst else []))


def ranks_report(ranks: Sequence[RankSummary], matches: CrossRank | None = None) -> RenderableType:
    """All ranks: their peaks, their processes, and which rank made the others wait."""
    peaks, processes = table_grid(present.peaks_table(ranks)), table_grid(present.processes_table(ranks))
    return sections([peaks, processes, stragglers_report(matches)])


def stragglers_report(found: CrossRank | None) -> RenderableType | None:
    """Ranks that came last, the one that cost most first; None where nothing was matched or missed."""
    if found is None or not (found.num_matched or found.never_joined) or found.is_single_rank:
        return None
    late = table_grid(stragglers_table(found.stragglers[:WORST], num_matched=found.num_matched))
    parts: list[RenderableType] = [late or heading("Late ranks", f"in {found.num_matched:,} matched collectives")]
    more = len(found.stragglers) - WORST
    if more > 0:
        parts.append(note(f"and {more:,} more ranks that came last at least once"))
    if found.num_matched:
        parts.append(sentence_text(late_rank(found.stragglers, found.num_matched)))
    if found.never_joined:
        parts.append(sentence_lines(never_joined(found.never_joined), style=FAILURE))
    return Group(*parts)


def endings(run: Run) -> Text:
    """How the run ended: one line when complete, else also the ranks that did not complete, in red."""
    found = present_endings.endings(run.manifest)
    style = FAILURE if found.is_known_to_fail else ""
    return Text("\n").join(sentence_text(one, style=style) for one in (found.summary, *found.problems))


def lost_folders(run: Run) -> Text | None:
    """Ranks that recorded something and whose folder is not in the run; None where all folders are there."""
    found = present_endings.lost_folders(run)
    return None if found is None else sentence_text(found, style=FAILURE)
