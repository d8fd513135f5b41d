"""Clocks of the ranks put on one axis by the ends of their common collectives.

[Note: Why ends]
A collective starts on each rank when that rank reaches it, but ends on all at nearly one moment: within 1 to 7 us
on eight GPUs of one machine. So the median difference of the ends is the difference of the clocks; by how much
the ends still differ after it is the residual. Ranks of one host have one clock. An offset is believed where it is
more than 10 us and three residuals, else it is 0: some ranks are done a little later than others, always.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.collectives.matching import Bools, Calls, Ints

END_SPREAD_NS: Final = 10_000
"""Ends on one clock differ by less."""
MIN_COLLECTIVES: Final = 2
"""One alone fits any offset."""
BELIEVED_RESIDUALS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Alignment:
    """What is to be taken off each rank's times."""

    offset_ns: dict[int, int] | None
    """By rank, against the lowest rank it has collectives with; None when refused."""
    residual_ns: int | None
    """Median over the collectives of what their ends still differ by; None without any."""
    reason: str
    """Why it was refused; '' when it was not."""

    def taken_off(self, rank: Ints) -> Ints:
        """The offset of each call's rank, 0 where there is none."""
        found = np.zeros(len(rank), np.int64)
        for number, offset in (self.offset_ns or {}).items():
            if offset:
                found[rank == number] = offset
        return found


def align(calls: Calls, chosen: Bools, *, hosts: Mapping[int, str]) -> Alignment:
    """The offsets of the ranks by the ends of the chosen collectives; `hosts` of the ranks where they are known."""
    count = calls.count
    rows = np.flatnonzero(np.repeat(chosen, count))
    num = int(chosen.sum())
    if num == 0:
        return Alignment(offset_ns=None, residual_ns=None, reason="no collective was recorded by all of its ranks")
    if num < MIN_COLLECTIVES:
        return Alignment(
            offset_ns=None,
            residual_ns=None,
            reason="one collective only, which fits any offset",
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
    noise = max(BELIEVED_RESIDUALS * residual, END_SPREAD_NS)
    offsets = {number: offset if abs(offset) > noise else 0 for number, offset in raw.items()}
    return Alignment(offset_ns=offsets, residual_ns=residual, reason="")


def median(values: Ints) -> int:
    """The lower median, exact for whole numbers; 0 of none."""
    if not len(values):
        return 0
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _offsets(rank: Ints, end: Ints, first: Ints) -> dict[int, int]:
    """Each rank's median difference to ranks known already, from the lowest rank outwards over common groups."""
    collective = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rank))))
    by_rank = np.argsort(rank, kind="stable")
    found_ranks, begins = np.unique(rank[by_rank], return_index=True)
    rows_of = dict(zip(found_ranks.tolist(), np.split(by_rank, begins[1:]), strict=True))
    known: dict[int, int] = {}
    while len(known) < len(rows_of):
        is_known = np.isin(rank, list(known))
        # The end of each collective on its first known rank; collectives without one cannot tell.
        reference = np.zeros(len(first), np.int64)
        has_one = np.zeros(len(first), np.bool_)
        rows = np.flatnonzero(is_known)[::-1]
        reference[collective[rows]] = end[rows] - _of(known, rank[rows])
        has_one[collective[rows]] = True
        reached = {}
        for number, mine in rows_of.items():
            told = mine[has_one[collective[mine]]] if number not in known else mine[:0]
            if len(told):
                reached[number] = median(end[told] - reference[collective[told]])
        if not reached:  # the next part of the job, which shares no collective with those before
            reached = {min(number for number in rows_of if number not in known): 0}
        known |= reached
    return known


def _of_hosts(offsets: dict[int, int], hosts: Mapping[int, str]) -> dict[int, int]:
    """One offset per host, the median of its ranks'; against that of the lowest rank's host."""
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
