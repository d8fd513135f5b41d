"""Findings as Markdown. A claim has names from the run in it, so it goes through `prose`; otherwise as in text.py."""

from collections.abc import Sequence
from typing import Final

from fsdp_dashboard.text import code, prose
from fsdp_profile.analysis.findings.finding import DOCS, Finding, Severity
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.core.humanize import bytes_text, ns_text

WORST_RANK: Final = "Of the worst rank's peak. What each saves does not add up."
OF_TIME: Final = "No memory was recorded: only the rules of time were asked."
NO_FINDINGS: Final = "No rule applies to this run."
MARKS: Final = {
    Severity.PROBLEM: ":red-badge[problem]",
    Severity.COSTS: ":orange-badge[costs]",
    Severity.EXPLAINS: ":blue-badge[explains]",
}
_VERDICTS: Final = {
    True: ":orange-badge[a reason]",
    False: ":green-badge[no reason]",
    None: ":gray-badge[not known]",
}


def told(found: Sequence[Finding]) -> list[tuple[str, str]]:
    """Of each finding the line, and what is behind it."""
    return [(headline(one), details(one)) for one in found]


def headline(found: Finding) -> str:
    """How much it matters, and the claim."""
    return f"{MARKS[found.severity]} {prose(found.claim)}"


def details(found: Finding) -> str:
    """What to do, what that saves, and where the rule is explained."""
    worth = saves(found)
    lines = [
        f"**Do**: {prose(found.action)}" if found.action else "",
        f"**Saves**: {worth}" if worth else "",
        f"**Rule**: {code(found.rule)}, explained in {code(DOCS)}",
    ]
    return "  \n".join(filter(None, lines))


def saves(found: Finding) -> str:
    """What the action is worth; empty where that is not known."""
    amounts = [
        bytes_text(found.saves_bytes) if found.saves_bytes else "",
        f"{ns_text(found.saves_ns)} a step" if found.saves_ns else "",
    ]
    told = " and ".join(f"**{amount}**" for amount in amounts if amount)
    return f"{told} (estimate)" if told and found.is_estimate else told


def reason(test: Reason) -> str:
    """One of the four tests: the question, whether it is a reason, and the run's values."""
    return f"**{test.question}** {_VERDICTS[test.is_reason]}  \n{prose(test.answer)}"
