"""Findings as sentences: the claim, what to do, what it is worth."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.present import findings as present
from fsdp_profile.present.values import Fact, say
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import heading, note, sections
from fsdp_profile.render.terminal.values import fact_lines, sentence_text

TOP: Final = 4
"""Findings of the overview."""

_STYLES: Final = {Severity.PROBLEM: FAILURE, Severity.COSTS: WARNING, Severity.EXPLAINS: "bold"}


def findings_report(found: Sequence[Finding], tests: Sequence[Reason] = (), *, has_peak: bool = True) -> RenderableType:
    """All of them, then why the run is not smaller (the four tests of a run that shards)."""
    title: RenderableType = heading("Findings", present.note(has_peak=has_peak))
    if not found:
        title = Group(title, sentence_text(present.NONE, style=QUIET))
    why = Group(heading(present.WHY_TITLE, present.WHY_NOTE), fact_lines(present.why_facts(tests))) if tests else None
    return sections([title, *map(_one, found), why])


def top_findings(found: Sequence[Finding]) -> RenderableType | None:
    """The first few, a line each; None without any."""
    if not found:
        return None
    rows = [Fact(label=one.severity.label, value=say(one.claim)) for one in found[:TOP]]
    more = len(found) - TOP
    left = [note(f"and {more} more: show RUN findings")] if more > 0 else []
    return Group(heading("Findings", "what to do about them: show RUN findings"), fact_lines(rows), *left)


def _one(found: Finding) -> RenderableType:
    head = Text(f"{found.severity.label}  {found.rule}", style=_STYLES[found.severity])
    return Group(head, fact_lines(present.facts(found)))
