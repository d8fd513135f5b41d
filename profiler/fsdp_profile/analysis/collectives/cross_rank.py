"""Cross-rank collectives: which rank came last, how long the others waited, and how fast the transfer itself was.

[Note: Wait and transfer]
A collective moves data once its last rank has started it: the wait of a rank is max(start) - its start, the transfer is
max(end) - max(start). Calls are one collective only if max(start) <= min(end) after the clocks are aligned; calls for
which this does not hold are rejected and counted. Bandwidths are those of nccl-tests: S / transfer, times a factor of
the kind.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.clocks import Alignment, align
from fsdp_profile.analysis.collectives.matching import Bools, Calls, Ints, match_calls, same_content
from fsdp_profile.analysis.collectives.stragglers import (
    NeverJoined,
    Straggler,
    active_units,
    in_pauses,
    never_joined,
    rank_stragglers,
)
from fsdp_profile.analysis.collectives.waits import collectives_table, index_of, measure_waits
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.words import Word
from fsdp_profile.ingest.tables import numbers

MIN_HOLDING_RATIO: Final = 0.5
"""At least this share of the candidates must overlap in time; below it their overlap is chance and none is accepted."""
MIN_HOLDING_RATIO_UNALIGNED: Final = 0.8
"""The same share where the clocks could not be aligned and each rank's own clock is used."""


class Unmatched(Word):
    """Why a collective was not matched."""

    MATCHED = ""
    ALONE = "recorded on one of its ranks only"
    UNKNOWN_RANKS = "the ranks of its group are not known"
    OTHER_STEPS = "some of its ranks did not record its step"
    NEVER_JOINED = "some of its ranks never joined"
    DIFFERENT = "kind, size or dtype differ between the ranks"
    NO_OVERLAP = "the ranks' calls do not overlap in time"


_WHY: Final = list(Unmatched)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossRankKind:
    """The matched collectives of one kind, in sums over them."""

    count: int
    wait_ns: int
    """Over all ranks but the last of each collective, without the waits that pauses of the capture caused."""
    transfer_ns: int
    busbw_bytes_per_s: float | None
    """Median; None where no size is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossRank:
    """The collectives of the training steps, over all ranks recorded here."""

    collectives: pa.Table
    """One row per matched collective, by start: collective int64, kind, group, group_description string, index
    int64 (its sequence, else its number in group and kind), step int64, unit string or null, size_bytes int64 or
    null (the largest that a rank recorded), dtype string, num_ranks, start_ns, end_ns (of the last rank) int64,
    late_rank int64 or null (null: all ranks started together), wait_ns int64 (sum over ranks), late_ns int64 (from the
    last rank but one to the last rank), transfer_ns int64, algbw_bytes_per_s, busbw_bytes_per_s float64 or null,
    late_unit string or null (active on the last rank just before), paused_wait_ns and paused_late_ns int64 (the
    parts of wait_ns and late_ns that the last rank spent in pauses of the capture)."""
    calls: pa.Table
    """One row per matched collective and rank: collective, rank, start_ns, end_ns (on the lowest rank's clock),
    wait_ns, paused_ns (the part of the wait caused by a pause of the capture), all int64."""
    num_unmatched: int
    unmatched: dict[str, int]
    """Why -> how many collectives."""
    clock: Alignment
    stragglers: tuple[Straggler, ...]
    """Ranks that came last at least once, by the wait they caused."""
    never_joined: tuple[NeverJoined, ...]
    is_single_rank: bool
    """There is no other rank to compare with."""

    @property
    def num_after_pause(self) -> int:
        """Matched collectives in which a pause of the capture caused a wait; that part is in no sum."""
        return int((self.collectives.column("paused_wait_ns").to_numpy() > 0).sum())

    @property
    def paused_wait_ns(self) -> int:
        """The time that is left out of the waits, because the last rank was in a pause in which the capture wrote."""
        return int(self.collectives.column("paused_wait_ns").to_numpy().sum())

    @property
    def num_matched(self) -> int:
        """How many collectives were matched."""
        return int(self.collectives.num_rows)


def cross_rank(run: Run) -> CrossRank:
    """Match the collectives of all ranks and measure them; see the note above.

    Raises:
        InputError: a rank's table is damaged.
    """
    calls = match_calls(run)
    joined, missing, why = _joined(run, calls)
    clock = align(calls, joined, hosts={record.rank: record.host for record in run.manifest.ranks if record.host})
    offset = clock.offset_of(calls.rank)
    start, end = calls.start_ns - offset, calls.end_ns - offset
    holds, clock = _holding(calls, joined, clock, start, end)
    why[joined & ~holds] = _WHY.index(Unmatched.NO_OVERLAP)
    waits = measure_waits(calls, holds, start, end)
    found, of_calls = collectives_table(calls, waits), waits.calls_table()
    units = active_units(run, found, waits.offset_ns)
    found = found.append_column("late_unit", pa.array(units, pa.string()))
    paused, lated = in_pauses(run, found, of_calls, waits.offset_ns)
    of_calls = of_calls.append_column("paused_ns", pa.array(paused))
    summed = np.zeros(int(found.column("collective").to_numpy().max(initial=-1)) + 1, np.int64)
    np.add.at(summed, of_calls.column("collective").to_numpy(), paused)
    found = found.append_column("paused_wait_ns", pa.array(summed[found.column("collective").to_numpy()]))
    found = found.append_column("paused_late_ns", pa.array(lated))
    found = found.sort_by("start_ns")
    counted = {str(reason): int((why == number).sum()) for number, reason in enumerate(_WHY)}
    return CrossRank(
        collectives=found,
        calls=of_calls,
        num_unmatched=int((~holds).sum()),
        unmatched={reason: count for reason, count in counted.items() if count and reason},
        clock=clock,
        stragglers=rank_stragglers(found),
        never_joined=never_joined(run, calls, missing, index_of(calls), start),
        is_single_rank=len(run.ranks) < 2,
    )


def by_kind(matches: CrossRank) -> dict[str, CrossRankKind]:
    """Sums over the matched collectives of each kind."""
    table = matches.collectives
    kind = np.array(table.column("kind").to_pylist(), object)
    wait, transfer = (table.column(name).to_numpy() for name in ("wait_ns", "transfer_ns"))
    wait = wait - table.column("paused_wait_ns").to_numpy()
    bandwidth = table.column("busbw_bytes_per_s").to_numpy(zero_copy_only=False)
    found = {}
    for word in sorted(set(kind.tolist())):
        mine = kind == word
        known = bandwidth[mine & ~np.isnan(bandwidth)]
        found[str(word)] = CrossRankKind(
            count=int(mine.sum()),
            wait_ns=int(wait[mine].sum()),
            transfer_ns=int(transfer[mine].sum()),
            busbw_bytes_per_s=float(np.median(known)) if len(known) else None,
        )
    return found


def _joined(run: Run, calls: Calls) -> tuple[Bools, list[tuple[int, tuple[int, ...]]], Ints]:
    """The collectives that all of their recorded ranks called alike, those that ranks missed, and why others do not.

    A rank is not missed in a step that it did not record, except in the step right after its last one. A collective
    that ended on one rank had all ranks in it, whatever they recorded; only one whose end no rank saw can miss a rank.
    """
    count, group = calls.count, calls.group[calls.first]
    here = set(run.ranks)
    expected = [tuple(r for r in g.ranks if r in here) if g.ranks is not None else None for g in calls.groups]
    sizes = np.array([-1 if ranks is None else len(ranks) for ranks in expected] + [0], np.int64)[group]
    why = np.full(len(count), _WHY.index(Unmatched.MATCHED), np.int64)
    why[~same_content(calls)] = _WHY.index(Unmatched.DIFFERENT)
    is_short = (sizes > count) & (sizes > 1)
    why[is_short] = _WHY.index(Unmatched.OTHER_STEPS)
    why[(sizes >= 0) & (sizes < 2)] = _WHY.index(Unmatched.ALONE)
    why[sizes < 0] = _WHY.index(Unmatched.UNKNOWN_RANKS)
    ends = np.append(calls.first, len(calls.rank))
    is_over = _is_over(run, calls)
    recorded = {rank: set(numbers(run.table("steps", rank=rank), "step").tolist()) for rank in run.ranks}
    missing = []
    for collective in np.flatnonzero(is_short).tolist():
        came = set(calls.rank[ends[collective] : ends[collective + 1]].tolist())
        step = int(calls.step[calls.first[collective]])
        absent = [r for r in expected[group[collective]] or () if r not in came]
        missed = tuple(r for r in absent if step in recorded[r] or step - 1 == max(recorded[r], default=step))
        missed = () if is_over[collective] else missed
        if missed:
            missing.append((collective, missed))
            why[collective] = _WHY.index(Unmatched.NEVER_JOINED)
    return why == 0, missing, why


def _is_over(run: Run, calls: Calls) -> Bools:
    """Which collectives ended: on one of the ranks something began after the end, so the collective did not hang."""
    if not len(calls.first):
        return np.zeros(0, np.bool_)
    latest = np.zeros(len(calls.rank), np.int64)
    for rank in run.ranks:
        mine = calls.rank == rank
        kernels = numbers(run.table("kernels", rank=rank), "start_ns")
        begun = [int(values.max()) for values in (calls.start_ns[mine], kernels) if len(values)]
        latest[mine] = max(begun, default=0)
    found: Bools = np.logical_or.reduceat(latest >= calls.end_ns, calls.first)
    return found


def _holding(calls: Calls, joined: Bools, clock: Alignment, start: Ints, end: Ints) -> tuple[Bools, Alignment]:
    """Which collectives fulfil max(start) <= min(end), and the clock, which is refused where too few do."""
    if not len(calls.first):
        return joined, clock
    overlap = np.maximum.reduceat(start, calls.first) <= np.minimum.reduceat(end, calls.first)
    holds = joined & overlap
    needed = MIN_HOLDING_RATIO if clock.offset_ns is not None else MIN_HOLDING_RATIO_UNALIGNED
    if joined.any() and holds.sum() < needed * joined.sum():
        few = f"only {holds.sum():,} of {joined.sum():,} collectives overlap in time on their ranks"
        reason = f"{few}; {clock.reason}" if clock.reason else few
        return np.zeros_like(joined), Alignment(offset_ns=None, residual_ns=clock.residual_ns, reason=reason)
    return holds, clock
