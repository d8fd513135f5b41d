"""The doorway's part on many ranks: their places and one number of each. Cached and guarded as data.py is."""

import contextlib
from collections.abc import Sequence

from fsdp_dashboard.data import RunFacts, RunRef, ask
from fsdp_profile.analysis.collectives import cross_rank_summary
from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary
from fsdp_profile.analysis.collectives.timeline import RankWait
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


def waits(ref: RunRef) -> list[RankWait]:
    """What each rank waited and what its transfers took, over the matched collectives."""
    return list(cross_rank(ref).waits)


def longest_wait_ns(refs: Sequence[RunRef]) -> int:
    """The longest wait and transfer of all ranks of some runs: what their figures share as scale."""
    found = [0]
    for ref in refs:
        with contextlib.suppress(FsdpProfileError):  # told where the run itself is drawn
            found += [wait.wait_ns + wait.transfer_ns for wait in waits(ref)]
    return max(found)
