"""Findings as sentences: the claim, what to do, what it is worth."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.findings.finding import DOCS, Finding, Severity
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, note, sections

TOP: Final = 4
"""Findings of the overview."""

_STYLES: Final = {Severity.PROBLEM: FAILURE, Severity.COSTS: WARNING, Severity.EXPLAINS: "bold"}
_WORDS: Final = {Severity.PROBLEM: "problem", Severity.COSTS: "costs", Severity.EXPLAINS: "explains"}


def findings_report(found: Sequence[Finding], tests: Sequence[Reason] = (), *, has_peak: bool = True) -> RenderableType:
    """All of them, then why the run is not smaller (the four tests of a run that shards)."""
    of_what = "worst rank's peak" if has_peak else "of time only: no memory was recorded"
    title = heading("Findings", f"{of_what}; each rule is explained in {DOCS}")
    if not found:
        title = Group(title, Text("none: no rule applies to this run", style=QUIET))  # type: ignore[assignment]
    return sections([title, *map(_one, found), _why_not_smaller(tests) if tests else None])


def _why_not_smaller(tests: Sequence[Reason]) -> RenderableType:
    words = {True: "a reason", False: "no", None: "not known"}
    rows = [(test.question, Text(f"{words[test.is_reason]}: {test.answer}")) for test in tests]
    return Group(heading("Why is FSDP not smaller?", "the four usual reasons"), facts(rows))


def top_findings(found: Sequence[Finding]) -> RenderableType | None:
    """The first few, a line each; None without any."""
    if not found:
        return None
    rows = [(_WORDS[f.severity], Text(plain(f.claim))) for f in found[:TOP]]
    more = len(found) - TOP
    left = [note(f"and {more} more: show RUN findings")] if more > 0 else []
    return Group(heading("Findings", "what to do about them: show RUN findings"), facts(rows), *left)


def _one(found: Finding) -> RenderableType:
    head = Text(f"{_WORDS[found.severity]}  {found.rule}", style=_STYLES[found.severity])
    rows = [("claim", Text(plain(found.claim)))]
    if found.action:
        rows.append(("do", Text(plain(found.action))))
    worth = _worth(found)
    if worth:
        rows.append(("saves", Text(worth)))
    return Group(head, facts(rows))


def _worth(found: Finding) -> str:
    saved = [
        text
        for text in (
            bytes_text(found.saves_bytes) if found.saves_bytes else "",
            f"{ns_text(found.saves_ns)} a step" if found.saves_ns else "",
        )
        if text
    ]
    return ", ".join(saved) + (" (estimate)" if saved and found.is_estimate else "")
