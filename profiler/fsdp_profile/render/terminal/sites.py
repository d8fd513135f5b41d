"""Source lines and modules by the bytes they hold at the peak."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType

from fsdp_profile.analysis.memory.call_sites import ModuleBytes, SourceLine
from fsdp_profile.present.call_sites import lines_table, modules_table
from fsdp_profile.render.terminal.values import table_grid

MAX_LINES: Final = 12


def source_lines_report(lines: Sequence[SourceLine] | None, *, peak_bytes: int) -> RenderableType | None:
    """The lines that hold most; None without --stacks."""
    return table_grid(lines_table(lines, peak_bytes=peak_bytes, max_rows=MAX_LINES)) if lines and peak_bytes else None


def modules_report(modules: Sequence[ModuleBytes] | None) -> RenderableType | None:
    """The modules whose forwards allocated most activations; None without --stacks."""
    return table_grid(modules_table(modules, max_rows=MAX_LINES)) if modules else None
