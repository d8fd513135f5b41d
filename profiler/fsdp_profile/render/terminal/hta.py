"""Our time breakdown beside HTA's, why they differ, and HTA's tables as they are."""

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.hta.comparison import Differences, Ours, Ratios, hta_ratios, is_same
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.core.humanize import ns_text
from fsdp_profile.render.terminal.parts import Field, Grid, heading, lines, note, sections

MAX_ROWS: Final = 20
"""Rows shown of one table."""

_NOTHING: Final = Ratios(overlap=None, idle=None, compute=None)
_MEASURES: Final = ("overlap", "idle", "compute")


def hta_report(tables: list[HtaTable], ours: Mapping[int, Ours]) -> RenderableType:
    """Both by rank, the reasons of what differs, our breakdown in time, then each analysis of HTA."""
    return sections([_beside(tables, ours), _breakdown(ours), *(_section(table) for table in tables)])


def _beside(tables: list[HtaTable], ours: Mapping[int, Ours]) -> RenderableType:
    theirs = hta_ratios(tables)
    ranks = sorted({*theirs, *ours})
    pairs = {
        measure: [
            (getattr(theirs.get(r, _NOTHING), measure), getattr(ours[r].ratios if r in ours else _NOTHING, measure))
            for r in ranks
        ]
        for measure in _MEASURES
    }
    grid = Grid(
        key=[Field(header="rank", cells=[str(rank) for rank in ranks[:MAX_ROWS]])],
        groups=[
            [
                Field(header=f"{measure} HTA", cells=[_percent(hta) for hta, _ in found[:MAX_ROWS]]),
                Field(header=f"{measure} ours", cells=[_percent(our) for _, our in found[:MAX_ROWS]]),
            ]
            for measure, found in pairs.items()
        ],
    )
    differs = [r for i, r in enumerate(ranks) if any(is_same(*pairs[m][i]) is False for m in _MEASURES)]
    parts: list[RenderableType] = [
        heading("HTA and ours", "overlap of communication; idle and compute of the active span"),
        grid,
        *_more(len(ranks)),
    ]
    if not differs:
        parts.append(note("the same to two decimals wherever both have a number"))
    else:
        parts.append(lines(line for rank in differs for line in _reasons(rank, ours.get(rank))))
    return Group(*parts)


def _reasons(rank: int, ours: Ours | None) -> list[str]:
    if ours is None:
        return [f"rank {rank}: only HTA has numbers"]
    found = _known_reasons(ours.differences)
    return [f"rank {rank}: {reason}" for reason in found or ["differs, and not for a reason that is known here"]]


def _known_reasons(found: Differences) -> list[str]:
    reasons = []
    if found.num_dropped:
        reasons.append(
            f"HTA drops {found.num_dropped:,} of {found.num_works:,} kernels and copies: they were launched before "
            f"the recording began, and ran in it"
        )
    if found.num_taken_for_compute:
        reasons.append(
            f"HTA counts {found.num_taken_for_compute:,} of {found.num_collectives:,} communication kernels as "
            f"compute, by their names"
        )
    return reasons


def _breakdown(ours: Mapping[int, Ours]) -> RenderableType:
    title = heading("Ours", "compute, exposed, copies and idle add up to the span")
    found = [(rank, our.breakdown) for rank, our in sorted(ours.items()) if our.breakdown is not None]
    if not found:
        return Group(title, lines(["not recorded: no kernels in the run"]))
    found = found[:MAX_ROWS]
    columns: dict[str, list[int | None]] = {
        "span": [b.span_ns for _, b in found],
        "compute": [b.compute_ns for _, b in found],
        "exposed": [b.exposed_ns for _, b in found],
        "copies": [b.memory_ns for _, b in found],
        "idle": [b.idle_ns for _, b in found],
        "host-bound": [b.host_bound_ns for _, b in found],
        "overlapped": [b.overlapped_ns for _, b in found],
    }
    grid = Grid(
        key=[Field(header="rank", cells=[str(rank) for rank, _ in found])],
        groups=[[Field(header=name, cells=list(map(ns_text, cells)))] for name, cells in columns.items()],
    )
    remark = note(
        "exposed: communication with no compute beside it; copies: with neither; "
        "host-bound: idle with nothing launched that waits to start"
    )
    return Group(title, grid, *_more(len(ours)), remark)


def _section(table: HtaTable) -> RenderableType:
    title = heading(f"HTA: {table.name}")
    if table.error is not None:
        return Group(title, lines([f"none: {table.error}"]))
    shown = table.rows[:MAX_ROWS]
    fields = [
        Field(header=name.replace("_", " "), cells=[_cell(row[i]) for row in shown])
        for i, name in enumerate(table.columns)
    ]
    return Group(title, Grid(key=fields[:1], groups=[[field] for field in fields[1:]]), *_more(len(table.rows)))


def _more(count: int) -> list[RenderableType]:
    return [note(f"and {count - MAX_ROWS:,} more rows")] if count > MAX_ROWS else []


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _percent(ratio: float | None) -> str:
    """To two decimals, as HTA has it."""
    return "-" if ratio is None else f"{100 * ratio:.2f} %"
