"""Source lines in words, and the code around one of them. As in text.py."""

from pathlib import Path
from typing import Final

from fsdp_dashboard.text import code, where
from fsdp_dashboard.views.source.queries import SourceLines
from fsdp_dashboard.views.source.source_file import SourceFile
from fsdp_profile.analysis.memory.call_sites import SourceLine
from fsdp_profile.core.humanize import bytes_text, ratio_text

AROUND: Final = 9
"""Lines shown before and after the chosen one."""
COMMAND: Final = "fsdp-profile run --stacks train.py"
CHANGED: Final = "The file was changed after the run was recorded: its lines may have moved."
_MAX_CHARS: Final = 200
_SIZE_CHARS: Final = 10


def verdict(found: SourceLines) -> str:
    """How much of the peak has a line."""
    peak, held = found.peak, sum(line.size_bytes for line in found.lines)
    share = ratio_text(held / peak.allocated_bytes if peak.allocated_bytes else None)
    return (
        f"Rank {peak.rank} peaks at **{bytes_text(peak.allocated_bytes)}** in {where(peak)}. "
        f"**{share}** of it ({bytes_text(held)}) was allocated by a line of the script's own code."
    )


def as_it_is_now(found: SourceFile) -> str:
    """Which file is shown, below the current folder where it is."""
    here = Path.cwd()
    path = found.path.relative_to(here) if found.path.is_relative_to(here) else found.path
    return f"{code(str(path))} as it is now; sizes are what each line holds at the peak."


def excerpt(found: SourceFile, chosen: SourceLine, lines: SourceLines) -> str | None:
    """The code around a line with what each line holds at the peak; None where the file has no such line."""
    if not 1 <= chosen.line <= len(found.lines):
        return None
    held: dict[int, int] = {}
    for line in lines.lines:
        if line.file == chosen.file:
            held[line.line] = held.get(line.line, 0) + line.size_bytes
    first, last = max(chosen.line - AROUND, 1), min(chosen.line + AROUND, len(found.lines))
    rows = []
    for number in range(first, last + 1):
        size = bytes_text(held[number]) if number in held else ""
        mark = ">" if number == chosen.line else " "
        text = found.lines[number - 1][:_MAX_CHARS]
        rows.append(f"{mark} {size:>{_SIZE_CHARS}}  {number:>{len(str(last))}} | {text}".rstrip())
    return "\n".join(rows)
