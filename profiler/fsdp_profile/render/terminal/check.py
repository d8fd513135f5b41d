"""The verdicts of a check as text for the terminal."""

from typing import Final

from rich.console import RenderableType
from rich.text import Text

from fsdp_profile.analysis.check.result import CheckReport, Verdict
from fsdp_profile.core.text import plain
from fsdp_profile.present.check import is_requested, summary
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, lines, note, sections

MAX_FAILED: Final = 20
_STYLES: Final = {Verdict.OK: QUIET, Verdict.BREACH: FAILURE, Verdict.NOT_RECORDED: WARNING}


def check_report(found: CheckReport) -> RenderableType:
    """The checks that failed, then the limits that hold; of other checks that hold only their number."""
    shown = [*found.failed[:MAX_FAILED], *(c for c in found.checks if c.verdict is Verdict.OK and is_requested(c))]
    rows = [(c.verdict.label, Text(plain(c.message), style=_STYLES[c.verdict])) for c in shown]
    parts: list[RenderableType | None] = [heading(found.run, summary(found).text)]
    if found.differences:
        parts.append(lines([f"not the same: {line}" for line in found.differences], style=WARNING))
    parts.append(facts(rows))
    more = len(found.failed) - MAX_FAILED
    parts.append(note(f"and {more} more that failed: see --json") if more > 0 else None)
    held = sum(c.verdict is Verdict.OK and not is_requested(c) for c in found.checks)
    parts.append(note(f"and {held} more that hold: categories, units, communicators") if held else None)
    return sections(parts)
