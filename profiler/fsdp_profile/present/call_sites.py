"""Source lines and modules by the bytes that they hold at the peak."""

from collections.abc import Sequence

from fsdp_profile.analysis.memory.call_sites import ModuleBytes, SourceLine
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.present.memory import categories_text, where
from fsdp_profile.present.values import Sentence, Table, Unit, column, say, strong, table


def line_name(line: SourceLine) -> str:
    """'train.py:12 forward'."""
    return f"{line.file}:{line.line} {line.function}".rstrip()


def lines_verdict(lines: Sequence[SourceLine], peak: Peak) -> Sentence:
    """How much of a peak was allocated by lines of the script's own code."""
    held = sum(line.size_bytes for line in lines)
    share = ratio_text(held / peak.allocated_bytes if peak.allocated_bytes else None)
    return say(
        f"Rank {peak.rank} peaks at ", strong(bytes_text(peak.allocated_bytes)), " in ", where(peak), ". ",
        strong(share), f" of it ({bytes_text(held)}) was allocated by a line of the script's own code.",
    )  # fmt: skip


def lines_table(lines: Sequence[SourceLine], *, peak_bytes: int, max_rows: int | None = None) -> Table:
    """The source lines, most bytes first."""
    shown = lines[:max_rows]
    share = ratio_text(sum(line.size_bytes for line in lines) / peak_bytes if peak_bytes else None)
    more = f", the first {len(shown)} of {len(lines)} lines" if len(shown) < len(lines) else ""
    return table(
        "Source lines at the peak",
        [
            column("bytes", Unit.BYTES, [line.size_bytes for line in shown]),
            column("share", Unit.RATIO, [line.size_bytes / peak_bytes if peak_bytes else None for line in shown],
                   follows=True),
            column("line", Unit.NAME, [f"{line.file}:{line.line}" for line in shown], follows=True),
            column("function", Unit.NAME, [line.function for line in shown], follows=True),
            column("blocks", Unit.COUNT, [line.num_blocks for line in shown], follows=True),
            column("categories", Unit.TEXT, [_categories(line) for line in shown]),
        ],
        note=f"{share} of the peak was allocated by a line of the script's own code{more}",
    )  # fmt: skip


def _categories(line: SourceLine) -> str:
    if len(line.by_category) == 1:
        return next(iter(line.by_category)).label
    return categories_text(line.by_category)


def modules_table(modules: Sequence[ModuleBytes], *, max_rows: int) -> Table:
    """The modules whose own forward allocated most activations."""
    shown = [m for m in modules if m.activation_bytes][:max_rows]
    return table(
        "Activations by module at the peak",
        [
            column("activations", Unit.BYTES, [m.activation_bytes for m in shown]),
            column("recomputed", Unit.BYTES, [m.recomputed_bytes for m in shown], follows=True),
            column("all bytes", Unit.BYTES, [m.size_bytes for m in shown], follows=True),
            column("blocks", Unit.COUNT, [m.num_blocks for m in shown], follows=True),
            column("module", Unit.NAME, [m.module for m in shown], follows=True),
        ],
        note="allocated in the module's own forward, without the modules inside it",
    )
