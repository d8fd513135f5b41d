"""Ranks that make the others wait, and collectives that a rank never reached.

A rank is late in a collective that it starts last; the time that the others waited for it is the wait it caused. Its
slowest unit is the one that was active on it in the middle between the start of the last rank but one and its own.

[Note: Pauses of the capture]
Between steps the capture stops training to write, on some ranks longer than on others. A wait during which the last
rank was in such a pause is caused by the profiler: it is the fault of no rank and counts in no sum.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.matching import Calls, Ints
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import units_at
from fsdp_profile.analysis.spans.intervals import covered_ns, union
from fsdp_profile.analysis.spans.recorded import unit_names
from fsdp_profile.core.schema import NO_UNIT
from fsdp_profile.ingest.tables import numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """One rank that came last at least once."""

    rank: int
    times_last: int
    wait_caused_ns: int
    """Sum over the collectives it was last in, and over the ranks that waited."""
    worst_unit: str | None
    """The slowest unit: the active one where the rank was latest in sum; '' is the root, None: no unit was active."""
    worst_unit_late_ns: int
    """The sum of its delays after the last rank but one, with that unit active."""
    worst_step: int
    worst_step_late_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NeverJoined:
    """The first collective of a group that a rank did not reach while others did."""

    rank: int
    kind: str
    group: str
    group_description: str
    index: int
    """Its sequence, else its number in group and kind."""
    step: int
    unit: str | None
    num_more: int
    """Further collectives of the group that it did not reach."""
    recording_ended: bool
    """The rank's recording ends before the others began it: it may have joined unseen."""


def rank_stragglers(collectives: pa.Table) -> tuple[Straggler, ...]:
    """Ranks that came last at least once, by the wait they caused; pauses of the capture are not counted."""
    late = collectives.column("late_rank").fill_null(-1).to_numpy()
    known = np.flatnonzero(late >= 0)
    late_rank = late[known]
    wait, late_ns, step, waited, late_paused = (
        collectives.column(name).to_numpy()[known]
        for name in ("wait_ns", "late_ns", "step", "paused_wait_ns", "paused_late_ns")
    )
    wait, late_ns = wait - waited, late_ns - late_paused
    unit = np.array(collectives.column("late_unit").to_pylist(), object)[known]
    found = []
    for rank in np.unique(late_rank).tolist():
        mine = late_rank == rank
        worst_unit, unit_ns = _largest(unit[mine], late_ns[mine])
        worst_step, step_ns = _largest(step[mine].astype(object), late_ns[mine])
        found.append(
            Straggler(
                rank=rank,
                times_last=int(mine.sum()),
                wait_caused_ns=int(wait[mine].sum()),
                worst_unit=worst_unit,
                worst_unit_late_ns=unit_ns,
                worst_step=worst_step,
                worst_step_late_ns=step_ns,
            )
        )
    return tuple(sorted(found, key=lambda s: (-s.wait_caused_ns, s.rank)))


def active_units(run: Run, collectives: pa.Table, offset_ns: dict[int, int]) -> list[str | None]:
    """For each collective: the active unit of its last rank while the others waited; None where there was none."""
    start, late_ns = (collectives.column(name).to_numpy() for name in ("start_ns", "late_ns"))
    late = collectives.column("late_rank").fill_null(-1).to_numpy()
    found: list[str | None] = [None] * len(start)
    for rank in np.unique(late[late >= 0]).tolist():
        rows = np.flatnonzero(late == rank)
        moment = start[rows] - late_ns[rows] // 2 + offset_ns.get(rank, 0)
        order = np.argsort(moment, kind="stable")
        names = unit_names(run, rank=rank)
        units = units_at(run, rank=rank, t_ns=moment[order])
        for row, unit in zip(rows[order].tolist(), units.tolist(), strict=True):
            found[row] = names.get(unit) if unit != NO_UNIT else None
    return found


def in_pauses(run: Run, collectives: pa.Table, calls: pa.Table, offset_ns: dict[int, int]) -> tuple[Ints, Ints]:
    """How long the last rank was in pauses of the capture, during each call's wait and each collective's delay."""
    start, late_ns, number = (collectives.column(name).to_numpy() for name in ("start_ns", "late_ns", "collective"))
    late = collectives.column("late_rank").fill_null(-1).to_numpy()
    waited, late_paused = np.zeros(calls.num_rows, np.int64), np.zeros(len(start), np.int64)
    if run.manifest.is_imported:
        return waited, late_paused
    of, begins, waits = (calls.column(name).to_numpy() for name in ("collective", "start_ns", "wait_ns"))
    by_number = np.argsort(number, kind="stable")
    row_of_call = by_number[np.searchsorted(number[by_number], of)] if len(number) else of
    for rank in np.unique(late[late >= 0]).tolist():
        steps, shift = run.table("steps", rank=rank).sort_by("start_ns"), offset_ns.get(rank, 0)
        pauses = union(numbers(steps, "end_ns")[:-1], numbers(steps, "start_ns")[1:])
        rows, mine = np.flatnonzero(late == rank), late[row_of_call] == rank
        late_paused[rows] = covered_ns(pauses, start[rows] + shift - late_ns[rows], start[rows] + shift)
        waited[mine] = covered_ns(pauses, begins[mine] + shift, begins[mine] + waits[mine] + shift)
    return waited, late_paused


def never_joined(
    run: Run, calls: Calls, missing: list[tuple[int, tuple[int, ...]]], index: Ints, start_ns: Ints
) -> tuple[NeverJoined, ...]:
    """For each rank and group the first collective that it did not reach, and how many more.

    Args:
        run: the run.
        calls: its calls.
        missing: collectives with the ranks that did not call them.
        index: of each collective.
        start_ns: of each call, aligned.
    """
    by_rank: dict[tuple[int, int], list[int]] = {}
    for collective, ranks in missing:
        for rank in ranks:
            by_rank.setdefault((rank, int(calls.group[calls.first[collective]])), []).append(collective)
    if not by_rank:
        return ()
    begins = np.minimum.reduceat(start_ns, calls.first)
    found = []
    for (rank, number), collectives in sorted(by_rank.items()):
        collective = min(collectives, key=lambda c: (int(begins[c]), c))
        row, group = calls.first[collective], calls.groups[number]
        offset = np.flatnonzero(calls.rank == rank)
        shift = int(calls.start_ns[offset[0]] - start_ns[offset[0]]) if len(offset) else 0
        found.append(
            NeverJoined(
                rank=rank,
                kind=calls.kinds[calls.kind[row]],
                group=group.name,
                group_description=group.description,
                index=int(index[collective]),
                step=int(calls.step[row]),
                unit=calls.units[calls.unit[row]],
                num_more=len(collectives) - 1,
                recording_ended=_last_ns(run, rank) - shift < int(begins[collective]),
            )
        )
    return tuple(found)


def _largest(key: np.ndarray[tuple[int], np.dtype[np.object_]], value: Ints) -> tuple[Any, int]:
    """The key with the largest sum of values, and that sum; the first of equal ones."""
    sums: dict[Any, int] = {}
    for word, amount in zip(key.tolist(), value.tolist(), strict=True):
        sums[word] = sums.get(word, 0) + amount
    best = max(sums, key=lambda word: sums[word])
    return best, sums[best]


def _last_ns(run: Run, rank: int) -> int:
    """The end of the last recorded step of a rank; 0 without steps."""
    steps = run.table("steps", rank=rank)
    return int(numbers(steps, "end_ns").max()) if steps.num_rows else 0
