"""Where the time of a rank's device went, step by step, and what its collectives cost in each direction."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.render.terminal.parts import Field, Grid, heading, note

MAX_STEPS: Final = 8
"""Steps listed; `--json` has all."""

_MEANING: Final = (
    "compute, exposed, copies and idle add up to the span. overlapped: communication with compute beside it. "
    "copies: with neither beside them. "
)


def breakdown_report(found: Mapping[int, TimeBreakdown], *, rank: int) -> RenderableType | None:
    """The parts of each step; None where no kernels or operators were recorded."""
    if not found:
        return None
    shown = list(found.items())[:MAX_STEPS]
    parts: list[tuple[str, list[int | None]]] = [
        ("span", [b.span_ns for _, b in shown]),
        ("compute", [b.compute_ns for _, b in shown]),
        ("exposed", [b.exposed_ns for _, b in shown]),
        ("copies", [b.memory_ns for _, b in shown]),
        ("idle", [b.idle_ns for _, b in shown]),
        ("overlapped", [b.overlapped_ns for _, b in shown]),
    ]
    host_bound = [b.host_bound_ns for _, b in shown]
    remark = _MEANING
    if any(ns is not None for ns in host_bound):
        parts.append(("host-bound", host_bound))
        remark += "host-bound: idle with nothing launched that waits."
    else:
        remark += f"host-bound: not recorded, {shown[0][1].host_bound_not_recorded}."
    grid = Grid(
        key=[Field(header="step", cells=[str(step) for step, _ in shown])],
        groups=[[Field(header=word, cells=[ns_text(ns) for ns in values])] for word, values in parts],
    )
    return Group(heading("Time by step", f"rank {rank}{_of(len(shown), len(found))}"), grid, Text(), note(remark))


def directions_report(rows: Any, *, rank: int) -> RenderableType | None:
    """Collectives by step, phase and kind (rows of `exposed_by_step`); None without any."""
    if rows.num_rows == 0:
        return None
    steps = list(dict.fromkeys(rows.column("step").to_pylist()))
    shown = [row for row in rows.to_pylist() if row["step"] in steps[:MAX_STEPS]]
    numbers = [
        Field(header="calls", cells=[f"{row['count']:,}" for row in shown]),
        Field(header="bytes", cells=[bytes_text(row["size_bytes"]) for row in shown]),
        Field(header="time", cells=[ns_text(row["total_ns"]) for row in shown]),
        Field(header="exposed", cells=[ns_text(row["exposed_ns"]) for row in shown]),
    ]
    key = [
        Field(header="step", cells=[str(row["step"]) for row in shown]),
        Field(header="phase", cells=[row["phase"] for row in shown], justify="left"),
        Field(header="kind", cells=[row["kind"] for row in shown], justify="left"),
    ]
    title = heading("By direction", f"rank {rank}{_of(min(len(steps), MAX_STEPS), len(steps))}")
    return Group(title, Grid(key=key, groups=[numbers]))


def _of(shown: int, there_are: int) -> str:
    return "" if shown == there_are else f", the first {shown} of {there_are} steps"
