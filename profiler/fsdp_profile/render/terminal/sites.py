"""Source lines and modules by the bytes they hold at the peak."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.memory.call_sites import ModuleBytes, SourceLine
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.render.terminal.parts import Field, Grid, Name, heading

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


def modules_report(modules: Sequence[ModuleBytes] | None) -> RenderableType | None:
    """The modules whose forwards allocated most activations; None without --stacks."""
    if not modules or not any(m.activation_bytes for m in modules):
        return None
    shown = [m for m in modules if m.activation_bytes][:MAX_LINES]
    grid = Grid(
        key=[Field(header="activations", cells=[bytes_text(m.activation_bytes) for m in shown])],
        groups=[
            [
                Field(header="recomputed", cells=[bytes_text(m.recomputed_bytes) for m in shown]),
                Field(header="all", cells=[bytes_text(m.size_bytes) for m in shown]),
                Field(header="blocks", cells=[f"{m.num_blocks:,}" for m in shown]),
                Field(header="module", cells=[Name(m.module) for m in shown], justify="left"),
            ]
        ],
    )
    remark = "allocated in its own forward, inner modules apart"
    return Group(heading("Activations by module at the peak", remark), grid)
