"""HTA's tables as they are, and our own overlap beside them."""

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives import CollectiveSummary
from fsdp_profile.analysis.hta import HtaTable
from fsdp_profile.humanize import ratio_text
from fsdp_profile.report.parts import Field, Grid, heading, lines, note, sections

MAX_ROWS = 20
"""Rows shown of one of HTA's tables."""


def hta_report(tables: list[HtaTable], ours: dict[int, CollectiveSummary | None]) -> RenderableType:
    """Each analysis as a table, or HTA's own words where it gave none; our overlap by rank at the end."""
    return sections([*(_section(table) for table in tables), _ours(ours)])


def _section(table: HtaTable) -> RenderableType:
    title = heading(f"HTA: {table.name}")
    if table.error is not None:
        return Group(title, lines([f"none: {table.error}"]))
    shown = table.rows[:MAX_ROWS]
    fields = [
        Field(header=name.replace("_", " "), cells=[_cell(row[i]) for row in shown])
        for i, name in enumerate(table.columns)
    ]
    more = [note(f"and {len(table.rows) - MAX_ROWS} more rows")] if len(table.rows) > MAX_ROWS else []
    return Group(title, Grid(key=fields[:1], groups=[[field] for field in fields[1:]]), *more)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _ours(ours: dict[int, CollectiveSummary | None]) -> RenderableType:
    cells = []
    for found in ours.values():
        if found is None or found.overlapped_ns is None or found.total_ns == 0:
            cells.append("not recorded")
        else:
            cells.append(ratio_text(found.overlapped_ns / found.total_ns))
    grid = Grid(
        key=[Field(header="rank", cells=[str(rank) for rank in ours])],
        groups=[[Field(header="communication overlapped", cells=cells)]],
    )
    return Group(heading("Ours", "over the training steps; busy time is a union of intervals"), grid, Text())
