"""Waits, transfers and bandwidths of matched collectives; see [Note: Wait and transfer] in cross_rank.py."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.matching import MISSING, Bools, Calls, Ints
from fsdp_profile.core.schema import CollectiveKind

_SPREADING: Final = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)
_FAR: Final = np.iinfo(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Matched collectives: one row each, and their calls."""

    collective: Ints
    """Number of each among all."""
    lead: Ints
    """Its first call, a row of Calls."""
    count: Ints
    size_bytes: Ints
    """The largest size that a rank recorded."""
    start_ns: Ints
    """When its last rank started it."""
    end_ns: Ints
    late_rank: Ints
    wait_ns: Ints
    """Sum over its ranks."""
    late_ns: Ints
    """From the start of the last rank but one to the start of the last rank."""
    call_rank: Ints
    call_start_ns: Ints
    """Aligned."""
    call_end_ns: Ints
    offset_ns: dict[int, int]
    """Rank -> the offset that was subtracted from its times."""

    def calls_table(self) -> pa.Table:
        """One row per call; see CrossRank.calls."""
        wait = np.repeat(self.start_ns, self.count) - self.call_start_ns
        return pa.table(
            {
                "collective": np.repeat(self.collective, self.count),
                "rank": self.call_rank,
                "start_ns": self.call_start_ns,
                "end_ns": self.call_end_ns,
                "wait_ns": wait,
            }
        )


def measure_waits(calls: Calls, holds: Bools, start_ns: Ints, end_ns: Ints) -> Waits:
    """Measure the accepted collectives by the aligned times of all calls."""
    rows = np.flatnonzero(np.repeat(holds, calls.count))
    count, rank, start, end = calls.count[holds], calls.rank[rows], start_ns[rows], end_ns[rows]
    none = np.zeros(0, np.int64)
    columns: dict[str, Ints] = dict.fromkeys(
        ("size_bytes", "start_ns", "end_ns", "late_rank", "wait_ns", "late_ns"), none
    )
    if len(count):
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        last = np.maximum.reduceat(start, first)
        is_last = start == np.repeat(last, count)
        late = np.minimum.reduceat(np.where(is_last, rank, _FAR.max), first)
        is_late = rank == np.repeat(late, count)
        columns = {
            "size_bytes": np.maximum.reduceat(calls.size_bytes[rows], first),
            "start_ns": last,
            "end_ns": np.maximum.reduceat(end, first),
            "late_rank": late,
            "wait_ns": np.add.reduceat(np.repeat(last, count) - start, first),
            "late_ns": last - np.maximum.reduceat(np.where(is_late, _FAR.min, start), first),
        }
    return Waits(
        collective=np.flatnonzero(holds),
        lead=calls.first[holds],
        count=count,
        call_rank=rank,
        call_start_ns=start,
        call_end_ns=end,
        offset_ns=dict(zip(rank.tolist(), (calls.start_ns[rows] - start).tolist(), strict=True)),
        **columns,
    )


def collectives_table(calls: Calls, waits: Waits) -> pa.Table:
    """One row per matched collective; see CrossRank.collectives, without its column `late_unit`."""
    lead, size, transfer = waits.lead, waits.size_bytes, waits.end_ns - waits.start_ns
    kinds = [calls.kinds[k] for k in calls.kind[lead]]
    groups = [calls.groups[g] for g in calls.group[lead]]
    num_ranks = [g.size or int(c) for g, c in zip(groups, waits.count, strict=True)]
    factor = np.array([bus_factor(k, n) for k, n in zip(kinds, num_ranks, strict=True)], np.float64)
    is_known = (size > 0) & (transfer > 0)
    algbw: np.ndarray[Any, np.dtype[np.float64]] = np.where(is_known, size, 0) / np.where(is_known, transfer, 1) * 1e9
    return pa.table(
        {
            "collective": waits.collective,
            "kind": pa.array(kinds, pa.string()),
            "group": pa.array([g.name for g in groups], pa.string()),
            "group_description": pa.array([g.description for g in groups], pa.string()),
            "index": index_of(calls)[waits.collective],
            "step": calls.step[lead],
            "unit": pa.array([calls.units[u] for u in calls.unit[lead]], pa.string()),
            "size_bytes": pa.array(size, mask=size == MISSING),
            "dtype": pa.array([calls.dtypes[d] for d in calls.dtype[lead]], pa.string()),
            "num_ranks": waits.count,
            "start_ns": waits.start_ns,
            "end_ns": waits.end_ns,
            "late_rank": pa.array(waits.late_rank, mask=waits.wait_ns == 0),
            "wait_ns": waits.wait_ns,
            "late_ns": waits.late_ns,
            "transfer_ns": transfer,
            "algbw_bytes_per_s": pa.array(algbw, mask=~is_known),
            "busbw_bytes_per_s": pa.array(algbw * factor, mask=~is_known),
        }
    )


def bus_factor(kind: str, num_ranks: int) -> float:
    """The factor by which nccl-tests multiply S / time to compare it with the speed of a link.

    >>> bus_factor("ALL_REDUCE", 4), bus_factor("ALL_GATHER", 4), bus_factor("BROADCAST", 4)
    (1.5, 0.75, 1.0)
    """
    n = max(num_ranks, 1)
    if kind == CollectiveKind.ALL_REDUCE.value:
        return 2 * (n - 1) / n
    return (n - 1) / n if kind in {spreading.value for spreading in _SPREADING} else 1.0


def index_of(calls: Calls) -> Ints:
    """For each collective: its sequence, else its number among those of its group and kind."""
    first = calls.first
    if not len(first):
        return first
    key = calls.group[first] * (len(calls.kinds) + 1) + calls.kind[first]
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    index = np.empty(len(first), np.int64)
    index[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return np.where(calls.sequence[first] == MISSING, index, calls.sequence[first])
