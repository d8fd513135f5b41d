"""Align the clocks of the ranks by the ends of their common collectives.

[Note: Why ends]
A collective starts on each rank when that rank reaches it, but it ends on all ranks at nearly the same moment: within
1 to 7 us on eight GPUs of one machine. So the median difference of the ends is the difference of the clocks; by how
much the ends still differ after the alignment is the residual. Ranks of one host share one clock. An offset is accepted
where it is more than 10 us and more than three residuals; otherwise it is 0, because some ranks always finish later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.collectives.matching import Bools, Calls, Ints

END_SPREAD_NS: Final = 10_000
"""Ends measured by one clock differ by less."""
MIN_COLLECTIVES: Final = 2
"""A single collective fits any offset."""
MIN_OFFSET_RESIDUALS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Alignment:
    """The offset to subtract from the times of each rank, or why there is none."""

    offset_ns: dict[int, int] | None
    """Rank -> offset against the lowest rank that it shares collectives with; None where the alignment was refused."""
    residual_ns: int | None
    """Median over the collectives of the remaining difference of their ends; None without collectives."""
    reason: str
    """Why the alignment was refused; '' where it was not."""

    def offset_of(self, rank: Ints) -> Ints:
        """The offset of each call's rank, 0 where there is none."""
        found = np.zeros(len(rank), np.int64)
        for number, offset in (self.offset_ns or {}).items():
            if offset:
                found[rank == number] = offset
        return found


def align(calls: Calls, chosen: Bools, *, hosts: Mapping[int, str]) -> Alignment:
    """Compute the offset of each rank from the ends of the chosen collectives.

    Args:
        calls: the calls of all ranks.
        chosen: which collectives to use.
        hosts: rank -> host, where it is known.
    """
    count = calls.count
    rows = np.flatnonzero(np.repeat(chosen, count))
    num = int(chosen.sum())
    if num == 0:
        return Alignment(offset_ns=None, residual_ns=None, reason="no collective was recorded by all of its ranks")
    if num < MIN_COLLECTIVES:
        return Alignment(
            offset_ns=None,
            residual_ns=None,
            reason="there is only one collective, which fits any offset",
        )
    first = np.concatenate([[0], np.cumsum(count[chosen])[:-1]])
    rank, end, start = calls.rank[rows], calls.end_ns[rows], calls.start_ns[rows]
    raw = _of_hosts(_offsets(rank, end, first), hosts)
    aligned = end - _of(raw, rank)
    residual = median(np.maximum.reduceat(aligned, first) - np.minimum.reduceat(aligned, first))
    shortest = median(np.minimum.reduceat(end - start, first))
    is_one_host = len({hosts.get(number, f"\0{number}") for number in raw}) == 1
    if residual > shortest and not is_one_host:
        return Alignment(
            offset_ns=None,
            residual_ns=residual,
            reason=f"ends differ by {residual:,} ns after alignment, more than the collectives last "
            f"({shortest:,} ns): the clocks drift, or these are not the same collectives",
        )
    noise = max(MIN_OFFSET_RESIDUALS * residual, END_SPREAD_NS)
    offsets = {number: offset if abs(offset) > noise else 0 for number, offset in raw.items()}
    return Alignment(offset_ns=offsets, residual_ns=residual, reason="")


def median(values: Ints) -> int:
    """The lower median, exact for whole numbers; 0 without values."""
    if not len(values):
        return 0
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _offsets(rank: Ints, end: Ints, first: Ints) -> dict[int, int]:
    """The median offset of each rank to ranks aligned before it, from the lowest rank outwards over common groups."""
    collective = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rank))))
    by_rank = np.argsort(rank, kind="stable")
    found_ranks, begins = np.unique(rank[by_rank], return_index=True)
    rows_of = dict(zip(found_ranks.tolist(), np.split(by_rank, begins[1:]), strict=True))
    known: dict[int, int] = {}
    while len(known) < len(rows_of):
        is_known = np.isin(rank, list(known))
        # The end of each collective on its first aligned rank; collectives without one are of no use here.
        reference = np.zeros(len(first), np.int64)
        has_one = np.zeros(len(first), np.bool_)
        rows = np.flatnonzero(is_known)[::-1]
        reference[collective[rows]] = end[rows] - _of(known, rank[rows])
        has_one[collective[rows]] = True
        reached = {}
        for number, mine in rows_of.items():
            usable = mine[has_one[collective[mine]]] if number not in known else mine[:0]
            if len(usable):
                reached[number] = median(end[usable] - reference[collective[usable]])
        if not reached:  # the next part of the job, which shares no collective with those before
            reached = {min(number for number in rows_of if number not in known): 0}
        known |= reached
    return known


def _of_hosts(offsets: dict[int, int], hosts: Mapping[int, str]) -> dict[int, int]:
    """One offset per host, the median over its ranks, against the offset of the lowest rank's host."""
    ranks_of: dict[str, list[int]] = {}
    for rank in offsets:
        ranks_of.setdefault(hosts.get(rank, f"\0{rank}"), []).append(rank)
    shared: dict[int, int] = {}
    for ranks in ranks_of.values():
        together = median(np.array([offsets[rank] for rank in ranks], np.int64))
        shared |= dict.fromkeys(ranks, together)
    zero = shared[min(shared)]
    return {rank: shared[rank] - zero for rank in sorted(shared)}


def _of(offsets: dict[int, int], rank: Ints) -> Ints:
    if not len(rank):
        return np.zeros(0, np.int64)
    table = np.zeros(int(rank.max()) + 1, np.int64)
    for number, offset in offsets.items():
        if number < len(table):
            table[number] = offset
    return table[rank]
