"""Findings, and why a sharded run is not smaller."""

from collections.abc import Sequence
from typing import Final

from fsdp_profile.analysis.findings.finding import DOCS, Finding
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.present.values import Fact, Sentence, joined, say, strong

NONE: Final = say("No rule applies to this run.")
WHY_TITLE: Final = "Why is FSDP not smaller?"
WHY_NOTE: Final = "the four usual reasons"
_VERDICTS: Final = {True: "a reason", False: "not a reason", None: "not known"}


def note(*, has_peak: bool) -> str:
    """Of what the findings are, and where the rules are explained."""
    of_what = "of the worst rank's peak; savings do not add up" if has_peak else "of time only: no memory was recorded"
    return f"{of_what}; each rule is explained in {DOCS}"


def saves(found: Finding) -> Sentence:
    """What the action of a finding is worth; empty where that is not known."""
    amounts = [
        bytes_text(found.saves_bytes) if found.saves_bytes else "",
        f"{ns_text(found.saves_ns)} per step" if found.saves_ns else "",
    ]
    worth = joined([say(strong(amount)) for amount in amounts if amount], " and ")
    return say(worth, " (estimate)") if worth and found.is_estimate else worth


def facts(found: Finding) -> list[Fact]:
    """The claim of a finding, what to do, and what that saves."""
    rows = [Fact(label="claim", value=say(found.claim))]
    if found.action:
        rows.append(Fact(label="action", value=say(found.action)))
    worth = saves(found)
    return [*rows, Fact(label="saves", value=worth)] if worth else rows


def is_a_reason(test: Reason) -> str:
    """The outcome of one of the four tests."""
    return _VERDICTS[test.is_reason]


def why_facts(tests: Sequence[Reason]) -> list[Fact]:
    """The four tests: the question, whether it is a reason, and the run's values."""
    return [Fact(label=test.question, value=say(strong(is_a_reason(test)), f": {test.answer}")) for test in tests]
