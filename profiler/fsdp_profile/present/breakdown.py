"""Where the time of a rank's device went: compute, exposed communication, copies and idle time."""

from collections.abc import Iterable, Mapping
from typing import Final

from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.present.values import Column, Table, Unit, column, table

PARTS: Final = ("compute", "exposed", "copies", "idle")
"""The parts that add up to the span, in the order in which they are drawn."""
_MEANING: Final = (
    "compute, exposed, copies and idle add up to the span. exposed: communication not hidden behind compute; "
    "overlapped: communication hidden behind compute; copies: neither compute nor communication runs; host-bound: "
)


def steps_table(found: Mapping[int, TimeBreakdown], *, rank: int, max_steps: int | None = None) -> Table:
    """The parts of each step's time; of the first steps only where there are more."""
    shown = dict(list(found.items())[:max_steps])
    which = "" if len(shown) == len(found) else f", the first {len(shown)} of {len(found):,} steps"
    columns = [column("step", Unit.COUNT, shown), *_parts(shown.values())]
    return table("Time by step", columns, note=f"rank {rank}{which}")


def ranks_table(found: Mapping[int, TimeBreakdown], *, max_rows: int) -> Table:
    """The same parts over the whole recording of each rank."""
    shown = dict(list(found.items())[:max_rows])
    return table(
        "Ours",
        [column("rank", Unit.COUNT, shown), *_parts(shown.values())],
        note="compute, exposed, copies and idle add up to the span",
    )


def meaning(found: Iterable[TimeBreakdown]) -> str:
    """What the parts mean, and why the host-bound time is not recorded where it is not."""
    reasons = dict.fromkeys(b.host_bound_not_recorded for b in found if b.host_bound_not_recorded is not None)
    if reasons:
        return f"{_MEANING}not recorded, {'; '.join(reasons)}."
    return f"{_MEANING}idle while nothing that was launched waits to start."


def _parts(found: Iterable[TimeBreakdown]) -> list[Column]:
    steps = list(found)
    return [
        column("span", Unit.NS, [b.span_ns for b in steps]),
        column("compute", Unit.NS, [b.compute_ns for b in steps]),
        column("exposed", Unit.NS, [b.exposed_ns for b in steps]),
        column("copies", Unit.NS, [b.memory_ns for b in steps]),
        column("idle", Unit.NS, [b.idle_ns for b in steps]),
        column("overlapped", Unit.NS, [b.overlapped_ns for b in steps]),
        column("host-bound", Unit.NS, [b.host_bound_ns for b in steps]),
    ]
