"""The answer of a check as text for the terminal, as Markdown for a pull request, as JUnit for a test report."""

from typing import Final

from rich.console import RenderableType
from rich.text import Text

from fsdp_profile.analysis.check.result import CheckReport, Verdict
from fsdp_profile.core.text import plain
from fsdp_profile.present.check import VERDICT_WORDS, is_asked_for, summary
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, lines, note, sections

_STYLES = {Verdict.OK: QUIET, Verdict.BREACH: FAILURE, Verdict.NOT_RECORDED: WARNING}
MAX_FAILED: Final = 20


def check_report(found: CheckReport) -> RenderableType:
    """What failed, then the limits that held; of a baseline that held everywhere one line."""
    shown = [*found.failed[:MAX_FAILED], *(c for c in found.checks if c.verdict is Verdict.OK and is_asked_for(c))]
    rows = [(VERDICT_WORDS[c.verdict], Text(plain(c.message), style=_STYLES[c.verdict])) for c in shown]
    parts: list[RenderableType | None] = [heading(found.run, summary(found))]
    if found.differences:
        parts.append(lines([f"not the same: {line}" for line in found.differences], style=WARNING))
    parts.append(facts(rows))
    more = len(found.failed) - MAX_FAILED
    parts.append(note(f"and {more} more that failed: see --json") if more > 0 else None)
    held = sum(c.verdict is Verdict.OK and not is_asked_for(c) for c in found.checks)
    parts.append(note(f"and {held} more that hold: categories, units, communicators") if held else None)
    return sections(parts)
