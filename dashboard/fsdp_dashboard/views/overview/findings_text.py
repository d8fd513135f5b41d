"""Findings as Markdown with badges. A claim has names from the run in it, so it goes through `prose`."""

from typing import Final

from fsdp_dashboard.text import code, prose
from fsdp_dashboard.values import markdown
from fsdp_profile.analysis.findings.finding import DOCS, Finding, Severity
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.present.findings import is_a_reason, saves

_COLOURS: Final = {Severity.PROBLEM: "red", Severity.COSTS: "orange", Severity.EXPLAINS: "blue"}
_VERDICT_COLOURS: Final = {True: "orange", False: "green", None: "gray"}


def headline(found: Finding) -> str:
    """How much it matters, and the claim."""
    return f":{_COLOURS[found.severity]}-badge[{found.severity.label}] {prose(found.claim)}"


def details(found: Finding) -> str:
    """What to do, what that saves, and where the rule is explained."""
    worth = markdown(saves(found))
    lines = [
        f"**Action**: {prose(found.action)}" if found.action else "",
        f"**Saves**: {worth}" if worth else "",
        f"**Rule**: {code(found.rule)}, explained in {code(DOCS)}",
    ]
    return "  \n".join(filter(None, lines))


def reason(test: Reason) -> str:
    """One of the four tests: the question, whether it is a reason, and the run's values."""
    badge = f":{_VERDICT_COLOURS[test.is_reason]}-badge[{is_a_reason(test)}]"
    return f"**{test.question}** {badge}  \n{prose(test.answer)}"
