"""Queries about findings, why a run is not smaller, and the questions of a newcomer; cached and guarded by data.py."""

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.cache import cached_of_run
from fsdp_profile.analysis.findings import evaluate, questions
from fsdp_profile.analysis.findings import why_not_smaller as tests
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.analysis.findings.questions import Answers
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.analysis.run import Run


def findings(ref: RunRef) -> list[Finding]:
    """The findings of a run, most important first."""
    found: list[Finding] = ask(_findings, ref)
    return found


def why_not_smaller(ref: RunRef) -> list[Reason]:
    """The four tests of a run that shards; empty for one that does not."""
    found: list[Reason] = ask(_why_not_smaller, ref)
    return found


def answers(ref: RunRef) -> Answers:
    """What a newcomer asks of a run."""
    found: Answers = ask(questions.answers, ref)
    return found


def _findings(run: Run) -> list[Finding]:
    return cached_of_run(run, "findings", list[Finding], compute=lambda: evaluate.findings(run))


def _why_not_smaller(run: Run) -> list[Reason]:
    return cached_of_run(run, "why_not_smaller", list[Reason], compute=lambda: tests.why_not_smaller(run))
