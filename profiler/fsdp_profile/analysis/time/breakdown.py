"""Where the time of one rank's device went: compute, communication, copies, idle. The parts add up to the span.

[Note: Against HTA]
Over a whole recording the span, idle and compute time are those of HTA's temporal breakdown: from the first start to
the last end of device work, less the union of all of it; the union of compute. HTA's non-compute time is exposed_ns
plus memory_ns. HTA's host wait is per stream, and the whole gap before a kernel that was launched after the kernel
before it ended; ours is device time: idle while nothing that was launched waits, up to the return of the host's
call. A stream that waits for another one, and a kernel launched in time that begins late, are not the host's doing.
On CPU the training thread's operators are the compute, and the transport's threads the communication.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.collectives.exposure import compute_spans, exposed_ns
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.intervals import Ints, covered_ns, union
from fsdp_profile.ingest.tables import numbers

NO_LAUNCHES: Final = "the recording does not hold when the host launched each kernel"
ON_CPU: Final = "it ran on CPU: host and device are one"

Spans = tuple[Ints, Ints]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeBreakdown:
    """Parts of a span of device time: compute, exposed, memory and idle add up to it. Each is a union."""

    span_ns: int
    compute_ns: int
    communication_ns: int
    """All communication, hidden behind compute or not."""
    exposed_ns: int
    """Communication that is not hidden behind compute."""
    memory_ns: int
    """Copies and fills while neither compute nor communication runs."""
    idle_ns: int
    """No device work at all."""
    host_bound_ns: int | None
    """The idle time in which no launched work waits to start; None where launches were not recorded."""
    host_bound_not_recorded: str | None
    """Why it is None."""

    @property
    def busy_ns(self) -> int:
        """Any device work."""
        return self.span_ns - self.idle_ns

    @property
    def overlapped_ns(self) -> int:
        """Communication that is hidden behind compute."""
        return self.communication_ns - self.exposed_ns

    @property
    def overlap_ratio(self) -> float | None:
        """Overlapped time / communication time; None without communication."""
        return self.overlapped_ns / self.communication_ns if self.communication_ns else None

    @property
    def idle_ratio(self) -> float:
        """Idle time / span."""
        return self.idle_ns / self.span_ns

    @property
    def compute_ratio(self) -> float:
        """Compute time / span."""
        return self.compute_ns / self.span_ns


def time_breakdown(
    run: Run, *, rank: int, step: int | None = None, queued: Spans | None = None
) -> TimeBreakdown | None:
    """The breakdown of the whole recording or of one step; None where no kernels or operators were recorded in it.

    Args:
        run: the run.
        rank: the rank.
        step: a training step; see `step_breakdowns` for its bounds.
        queued: disjoint spans in which something was launched that had not begun; default: by the tables.
    """
    if step is not None:
        return step_breakdowns(run, rank=rank, queued=queued).get(step)
    parts = _parts(run, rank)
    if parts is None:
        return None
    begins, ends = parts.busy
    queued = queued if queued is not None else queued_spans(run, rank=rank)
    [found] = _measured(run, parts, (begins[:1], ends[-1:]), queued)
    return found


def step_breakdowns(run: Run, *, rank: int, queued: Spans | None = None) -> dict[int, TimeBreakdown]:
    """Step -> its breakdown, for each training step with recorded work, in order.

    A step lasts until the host's step and the device work launched in it have ended, and begins where the host's
    step does, but not before the step before has ended: steps that follow one another leave nothing out and count
    nothing twice.
    """
    parts = _parts(run, rank)
    if parts is None:
        return {}
    step, begin, end = _step_bounds(run, rank)
    kernels = run.table("kernels", rank=rank)
    timed = (step >= 0) & np.isin(step, numbers(kernels, "step")) & (end > begin)
    queued = queued if queued is not None else queued_spans(run, rank=rank)
    found = _measured(run, parts, (begin[timed], end[timed]), queued)
    return dict(zip(step[timed].tolist(), found, strict=True))


def queued_spans(run: Run, *, rank: int) -> Spans | None:
    """Disjoint spans in which launched work waited to start; None where no launch was recorded.

    Work of unknown launch was launched before the recording: it waits from the first start on.
    """
    tables = [run.table(name, rank=rank) for name in ("kernels", "collectives")]
    if all(table.column("launch_ns").null_count == table.num_rows for table in tables):
        return None
    start = np.concatenate([numbers(table, "start_ns") for table in tables])
    known = np.concatenate([table.column("launch_ns").is_valid().to_numpy() for table in tables])
    launched = np.concatenate([table.column("launch_ns").fill_null(0).to_numpy() for table in tables])
    return union(np.where(known, launched, start.min()), start)


def exposed_by_step(run: Run, *, rank: int) -> pa.Table:
    """Collectives of the training steps by step, phase and kind, in order of their first start.

    Columns: step int32, phase, kind string, count int64, total_ns int64 (sum over the calls), exposed_ns int64 (the
    exposed part of it; null where no compute was recorded), size_bytes int64 (of the whole arrays; null
    when one of them was not recorded). Gathers and reductions have kinds of their own.
    """
    table = run.table("collectives", rank=rank)
    exposed = exposed_ns(run, rank=rank)
    rows = pa.table(
        {
            "step": table.column("step"),
            "phase": table.column("phase").cast(pa.string()),
            "kind": table.column("kind").cast(pa.string()),
            "start_ns": table.column("start_ns"),
            "total_ns": pc.subtract(table.column("end_ns"), table.column("start_ns")),
            "exposed_ns": pa.nulls(table.num_rows, pa.int64()) if exposed is None else pa.array(exposed),
            "size_bytes": table.column("size_bytes"),
        }
    ).filter(pc.greater_equal(table.column("step"), 0))
    whole = pc.ScalarAggregateOptions(skip_nulls=False)
    sums: list[Any] = [(name, "sum", whole) for name in ("total_ns", "exposed_ns", "size_bytes")]
    keys = ["step", "phase", "kind"]
    found = rows.group_by(keys).aggregate([("kind", "count"), ("start_ns", "min"), *sums])
    found = found.sort_by([("step", "ascending"), ("start_ns_min", "ascending"), ("kind", "ascending")])
    names = {"kind_count": "count", **{f"{name}_sum": name for name, _, _ in sums}}
    return pa.table(
        {**{key: found.column(key) for key in keys}, **{new: found.column(old) for old, new in names.items()}}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """Disjoint spans; each holds the ones before it."""

    compute: Spans
    compute_or_communication: Spans
    busy: Spans
    communication: Spans


def _parts(run: Run, rank: int) -> _Parts | None:
    compute = compute_spans(run, rank=rank)
    if compute is None:
        return None
    communication, kernels = (
        union(numbers(table, "start_ns"), numbers(table, "end_ns"))
        for table in (run.table("collectives", rank=rank), run.table("kernels", rank=rank))
    )
    busy = _together(kernels, communication)
    if len(busy[0]) == 0:
        return None
    return _Parts(
        compute=compute,
        communication=communication,
        compute_or_communication=_together(compute, communication),
        busy=busy,
    )


def _measured(run: Run, parts: _Parts, spans: Spans, queued: Spans | None) -> list[TimeBreakdown]:
    compute, either, busy, communication = (
        covered_ns(part, *spans)
        for part in (parts.compute, parts.compute_or_communication, parts.busy, parts.communication)
    )
    length = spans[1] - spans[0]
    is_known = queued is not None and run.manifest.device_type != "cpu"
    host_bound = None if queued is None else length - covered_ns(_together(parts.busy, queued), *spans)
    why = ON_CPU if run.manifest.device_type == "cpu" else NO_LAUNCHES
    return [
        TimeBreakdown(
            span_ns=int(length[i]),
            compute_ns=int(compute[i]),
            communication_ns=int(communication[i]),
            exposed_ns=int(either[i] - compute[i]),
            memory_ns=int(busy[i] - either[i]),
            idle_ns=int(length[i] - busy[i]),
            host_bound_ns=int(host_bound[i]) if is_known and host_bound is not None else None,
            host_bound_not_recorded=None if is_known else why,
        )
        for i in range(len(length))
    ]


def _step_bounds(run: Run, rank: int) -> tuple[Ints, Ints, Ints]:
    """Step, begin and end of each row of `steps`, in order of time."""
    steps = run.table("steps", rank=rank).sort_by("start_ns")
    step, begin, end = (numbers(steps, name).astype(np.int64) for name in ("step", "start_ns", "end_ns"))
    place = np.argsort(step, kind="stable")
    for name in ("kernels", "collectives"):
        work = run.table(name, rank=rank)
        of, ended = numbers(work, "step"), numbers(work, "end_ns")
        at = np.minimum(np.searchsorted(step[place], of), len(place) - 1)
        known = step[place[at]] == of if len(place) else np.zeros(0, bool)
        np.maximum.at(end, place[at[known]], ended[known])
    end = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], end[:-1])
    return step, begin, end


def _together(one: Spans, other: Spans) -> Spans:
    return union(np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]]))
