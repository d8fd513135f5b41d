"""Queries of the Ranks page: the place of each rank, one number of each, and their waits; cached as in data.py."""

import contextlib
from collections.abc import Sequence

from fsdp_dashboard.data import RunFacts, RunRef, ask
from fsdp_profile.analysis.collectives import cross_rank_summary
from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary
from fsdp_profile.analysis.ranks import grid as rank_grid
from fsdp_profile.analysis.ranks.grid import Measure as Measure
from fsdp_profile.analysis.ranks.grid import RankGrid
from fsdp_profile.core.errors import FsdpProfileError

MANY = 16
"""More ranks than this are a heat map, not bars and lines."""
MEASURES = tuple(Measure)


def cross_rank(ref: RunRef) -> CrossRankSummary:
    """The collectives of all ranks, matched, in sums."""
    found: CrossRankSummary = ask(cross_rank_summary.cross_rank_summary, ref)
    return found


def grid(run: RunFacts) -> RankGrid:
    """Where each rank stands."""
    return rank_grid.rank_grid(run.ranks)


def values(ref: RunRef, run: RunFacts, measure: Measure) -> dict[int, int | None]:
    """Rank -> its number, in bytes or ns; None where it was not recorded."""
    is_wait = measure in (Measure.WAITED, Measure.CAUSED)
    return rank_grid.values_of(run.ranks, cross_rank(ref) if is_wait else None, measure)


def longest_wait_ns(refs: Sequence[RunRef]) -> int:
    """The longest wait and transfer of all ranks of some runs: the scale that their figures share."""
    found = [0]
    for ref in refs:
        with contextlib.suppress(FsdpProfileError):  # the message is shown where the run itself is drawn
            found += [wait.wait_ns + wait.transfer_ns for wait in cross_rank(ref).waits]
    return max(found)
