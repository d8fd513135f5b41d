"""Ranks as a grid, a column per node and a row per local rank, with one number each.

Only the summaries of the ranks are read, so that a thousand ranks can be shown at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.core.categories import Category
from fsdp_profile.core.words import Word

RANKS_A_COLUMN: Final = 8
"""Ranks in a column where all ranks have one host, or where no host was recorded."""


class Measure(Word):
    """The number shown for each rank."""

    PEAK = "peak, allocated"
    RESERVED = "peak, reserved"
    UNKNOWN = "unknown at the peak"
    STEP = "median step"
    WAITED = "waited for others"
    CAUSED = "made others wait"


BYTES: Final = (Measure.PEAK, Measure.RESERVED, Measure.UNKNOWN)
"""Measures in bytes; the others are in ns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankGrid:
    """The place of each rank."""

    columns: tuple[str, ...]
    """Host names, or ranges of ranks where there is one host."""
    are_hosts: bool
    ranks: tuple[tuple[int, ...], ...]
    """The ranks of each column, in order; a column may be shorter than another."""

    @property
    def num_rows(self) -> int:
        """Ranks of the longest column."""
        return max(map(len, self.ranks), default=0)


def rank_grid(summaries: Sequence[RankSummary]) -> RankGrid:
    """Ranks by host in order of their lowest rank; by eights where fewer than two hosts are known."""
    by_host: dict[str, list[int]] = {}
    for one in sorted(summaries, key=lambda s: s.rank):
        by_host.setdefault(one.record.host if one.record is not None else "", []).append(one.rank)
    if len(by_host) > 1:
        names = tuple(host or "host not recorded" for host in by_host)
        return RankGrid(columns=names, are_hosts=True, ranks=tuple(map(tuple, by_host.values())))
    every = [rank for ranks in by_host.values() for rank in ranks]
    ranges = [tuple(every[i : i + RANKS_A_COLUMN]) for i in range(0, len(every), RANKS_A_COLUMN)]
    return RankGrid(columns=tuple(f"{part[0]} to {part[-1]}" for part in ranges), are_hosts=False, ranks=tuple(ranges))


def values_of(
    summaries: Sequence[RankSummary], matches: CrossRankSummary | None, measure: Measure
) -> dict[int, int | None]:
    """Rank -> its number in bytes or ns; None where it was not recorded.

    Args:
        summaries: of every rank.
        matches: the matched collectives; None where they could not be read.
        measure: the number to take.
    """
    if measure in (Measure.WAITED, Measure.CAUSED):
        known = matches is not None and matches.num_matched > 0
        waits = {wait.rank: wait.wait_ns for wait in matches.waits} if matches is not None else {}
        if measure is Measure.CAUSED and matches is not None:
            caused = {one.rank: one.wait_caused_ns for one in matches.stragglers}
            waits = {rank: caused.get(rank, 0) for rank in waits}
        return {one.rank: waits.get(one.rank) if known else None for one in summaries}
    return {one.rank: _of_summary(one, measure) for one in summaries}


def _of_summary(one: RankSummary, measure: Measure) -> int | None:
    if measure is Measure.RESERVED:
        return one.reserved_peak_bytes
    if measure is Measure.STEP:
        return one.median_step_ns
    if one.peak is None:
        return None
    return one.peak.allocated_bytes if measure is Measure.PEAK else one.peak.by_category.get(Category.UNKNOWN, 0)
