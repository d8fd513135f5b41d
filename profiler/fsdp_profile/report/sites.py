"""Source lines by the bytes they hold at the peak."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.sites import SourceLine
from fsdp_profile.humanize import bytes_text, ratio_text
from fsdp_profile.report.parts import Field, Grid, Name, heading

MAX_LINES: Final = 12


def source_lines_report(lines: Sequence[SourceLine] | None, *, peak_bytes: int) -> RenderableType | None:
    """The lines that hold most; None without --stacks."""
    if not lines or not peak_bytes:
        return None
    shown = lines[:MAX_LINES]
    share = sum(line.size_bytes for line in lines) / peak_bytes
    grid = Grid(
        key=[Field(header="bytes", cells=[bytes_text(line.size_bytes) for line in shown])],
        groups=[
            [
                Field(header="blocks", cells=[f"{line.num_blocks:,}" for line in shown]),
                Field(header="mostly", cells=[str(next(iter(line.by_category))) for line in shown], justify="left"),
                Field(header="line", cells=[Name(f"{line.file}:{line.line}") for line in shown], justify="left"),
                Field(header="function", cells=[Name(line.function) for line in shown], justify="left"),
            ]
        ],
    )
    more = f", the first {len(shown)} of {len(lines)}" if len(shown) < len(lines) else ""
    remark = f"{ratio_text(share)} of the peak has a line of own code{more}"
    return Group(heading("Source lines at the peak", remark), grid)
