"""What a page draws of a time window of one rank: rows of its ledger, phases, steps and the largest blocks.

The time window of a step begins with one row at its start: what was live then.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.memory import pyramid
from fsdp_profile.analysis.memory.downsampling import kept_rows
from fsdp_profile.analysis.memory.ledger import Ints, Peak, peak, peak_of_steps
from fsdp_profile.analysis.memory.pyramid import MAX_ROWS, Level
from fsdp_profile.analysis.memory.step_ledger import step_ledger
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import units_at
from fsdp_profile.analysis.spans.recorded import PhaseSpan, unit_names
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.tables import numbers, strings

MAX_BLOCKS: Final = 300
"""The largest blocks of a time window: where three of them are live, they are the three largest live ones."""
MAX_PHASES: Final = 4_000
MAX_DETAIL_ROWS: Final = 26_000
"""The browser asks below 400 rows, of 32 events each on the finest level: twice that window has every event."""
MAX_SAMPLES: Final = 1_200


@dataclass(frozen=True, kw_only=True, slots=True)
class BigBlock:
    """A block live in the time window."""

    start_ns: int
    end_ns: int
    size_bytes: int
    category: str
    unit: int
    name: str
    operator: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeWindow:
    """One rank from one moment to another."""

    rank: int
    step: int | None
    """None: the whole recording."""
    start_ns: int
    end_ns: int
    level: Level
    units: Ints
    """The active unit at each row, NO_UNIT when none."""
    unit_names: dict[int, str]
    phases: tuple[PhaseSpan, ...] | None
    """In order of start; none where there are more than MAX_PHASES."""
    steps: tuple[tuple[int, int, int], ...]
    """Of a whole recording: number, start and end of each."""
    blocks: tuple[BigBlock, ...]
    """Largest first."""
    device: tuple[tuple[int, int], ...]
    """Moment, and bytes in use on the device then; empty where not recorded."""
    peak: Peak
    step_peaks: tuple[Peak, ...]
    """Of a whole recording: the peak of each step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Detail:
    """A part of a time window, with finer rows; the fields are those of a time window."""

    level: Level
    units: Ints
    phases: tuple[PhaseSpan, ...] | None
    blocks: tuple[BigBlock, ...]


def step_window(run: Run, *, rank: int, step: int) -> TimeWindow:
    """One step; every event of it, or of a long one those at each bin's least and greatest total.

    Raises:
        InputError: no allocator events in this step.
    """
    whole = step_ledger(run, rank=rank, step=step)
    total = whole.ledger.allocated_bytes
    rows = kept_rows(total, whole.ledger.t_ns, max_rows=MAX_ROWS)
    at = _peak(run, rank, step)
    return TimeWindow(
        rank=rank, step=step, start_ns=whole.start_ns, end_ns=whole.end_ns,
        level=pyramid.with_allocator(
            run, whole.ledger.taken(rows), rank=rank, bin_events=-(-len(total) // len(rows))
        ),
        units=whole.units[rows], unit_names=whole.unit_names, phases=whole.phases, steps=(),
        blocks=biggest_blocks(run, rank=rank, first=int(whole.ledger.event[0]), last=int(whole.ledger.event[-1])),
        device=_device(run, rank, whole.start_ns, whole.end_ns), peak=at, step_peaks=(),
    )  # fmt: skip


def run_window(run: Run, *, rank: int, max_rows: int = MAX_ROWS) -> TimeWindow:
    """The whole recording of a rank, set-up included.

    Raises:
        InputError: no allocator events in it.
    """
    at = _peak(run, rank, None)
    level = pyramid.whole(run, rank=rank, max_rows=max_rows)
    steps = run.table("steps", rank=rank).sort_by("start_ns")
    spans = [numbers(steps, name) for name in ("step", "start_ns", "end_ns")]
    start = min(int(level.ledger.t_ns[0]), *spans[1].tolist())
    end = max(int(level.ledger.t_ns[-1]), *spans[2].tolist())
    return TimeWindow(
        rank=rank, step=None, start_ns=start, end_ns=end, level=level,
        units=units_at(run, rank=rank, t_ns=level.ledger.t_ns), unit_names=unit_names(run, rank=rank),
        phases=phases_between(run, rank=rank, start_ns=start, end_ns=end),
        steps=tuple(zip(*(values.tolist() for values in spans), strict=True)),
        blocks=biggest_blocks(run, rank=rank, first=0, last=NOT_FREED - 1),
        device=_device(run, rank, start, end), peak=at, step_peaks=tuple(peak_of_steps(run, rank=rank)),
    )  # fmt: skip


def detail(run: Run, *, rank: int, start_ns: int, end_ns: int) -> Detail:
    """The finest rows of a part of a time window, and what goes with them."""
    level = pyramid.between(run, rank=rank, start_ns=start_ns, end_ns=end_ns, max_rows=MAX_DETAIL_ROWS)
    first, last = int(level.ledger.event[0]), int(level.ledger.event[-1])
    return Detail(
        level=level,
        units=units_at(run, rank=rank, t_ns=level.ledger.t_ns),
        phases=phases_between(run, rank=rank, start_ns=start_ns, end_ns=end_ns),
        blocks=biggest_blocks(run, rank=rank, first=first, last=last),
    )


def phases_between(run: Run, *, rank: int, start_ns: int, end_ns: int) -> tuple[PhaseSpan, ...] | None:
    """The phases that touch a time window, in order; None where there are too many to draw."""
    phases = run.table("phases", rank=rank)
    mine = phases.filter(pa.array((numbers(phases, "start_ns") < end_ns) & (numbers(phases, "end_ns") > start_ns)))
    if mine.num_rows > MAX_PHASES:
        return None
    mine = mine.sort_by("start_ns")
    rows = zip(strings(mine, "phase"), numbers(mine, "start_ns"), numbers(mine, "end_ns"), strict=True)
    return tuple(PhaseSpan(phase=str(phase), start_ns=int(start), end_ns=int(end)) for phase, start, end in rows)


def biggest_blocks(run: Run, *, rank: int, first: int, last: int) -> tuple[BigBlock, ...]:
    """The largest blocks that are live at some event of a time window."""
    blocks = run.table("allocations", rank=rank)
    size = numbers(blocks, "size_bytes")
    rows = np.flatnonzero((numbers(blocks, "start_event") <= last) & (numbers(blocks, "end_event") > first))
    if len(rows) > MAX_BLOCKS:
        rows = rows[np.argpartition(-size[rows], MAX_BLOCKS)[:MAX_BLOCKS]]
    rows = rows[np.lexsort((rows, -size[rows]))]
    found = blocks.select(list(BigBlock.__slots__)).take(pa.array(rows))
    return tuple(BigBlock(**row) for row in found.to_pylist())


def _peak(run: Run, rank: int, step: int | None) -> Peak:
    found = peak(run, rank=rank, step=step)
    if found is None:
        raise InputError(f"{run.path}: rank {rank} has no allocator events of a training step; choose another rank")
    return found


def _device(run: Run, rank: int, start_ns: int, end_ns: int) -> tuple[tuple[int, int], ...]:
    samples = run.table("device_samples", rank=rank)
    t_ns, used = samples.column("t_ns"), samples.column("device_used_bytes")
    inside = pc.and_(pc.is_valid(used), pc.and_(pc.greater_equal(t_ns, start_ns), pc.less_equal(t_ns, end_ns)))
    known = samples.filter(inside)
    size: np.ndarray[Any, Any] = known.column("device_used_bytes").to_numpy()
    if not len(size):
        return ()
    moments = known.column("t_ns").to_numpy()
    rows = kept_rows(size, moments, max_rows=MAX_SAMPLES)
    return tuple(zip(moments[rows].tolist(), size[rows].tolist(), strict=True))
