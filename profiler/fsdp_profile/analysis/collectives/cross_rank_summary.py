"""The sums that `cross_rank` finds, without its tables; they are cached, so that a thousand ranks are matched once."""

from dataclasses import dataclass

from fsdp_profile.analysis.cache import cached_of_run
from fsdp_profile.analysis.collectives.clocks import Alignment
from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.stragglers import NeverJoined, Straggler
from fsdp_profile.analysis.collectives.timeline import RankWait, rank_waits
from fsdp_profile.analysis.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossRankSummary:
    """The collectives of the training steps over all ranks, in sums; see `CrossRank` for what each field means."""

    num_matched: int
    num_unmatched: int
    unmatched: dict[str, int]
    clock: Alignment
    stragglers: tuple[Straggler, ...]
    never_joined: tuple[NeverJoined, ...]
    is_single_rank: bool
    num_after_pause: int
    paused_wait_ns: int
    waits: tuple[RankWait, ...]
    """What each rank waited and what its transfers took."""


def cross_rank_summary(run: Run) -> CrossRankSummary:
    """Match the collectives of all ranks, or read the cached sums.

    Raises:
        InputError: a rank's table is damaged.
    """
    return cached_of_run(run, "cross_rank", CrossRankSummary, compute=lambda: _of_tables(run))


def _of_tables(run: Run) -> CrossRankSummary:
    found = cross_rank(run)
    return CrossRankSummary(
        num_matched=found.num_matched,
        num_unmatched=found.num_unmatched,
        unmatched={str(why): count for why, count in found.unmatched.items()},
        clock=found.clock,
        stragglers=found.stragglers,
        never_joined=found.never_joined,
        is_single_rank=found.is_single_rank,
        num_after_pause=found.num_after_pause,
        paused_wait_ns=found.paused_wait_ns,
        waits=tuple(rank_waits(found)),
    )
