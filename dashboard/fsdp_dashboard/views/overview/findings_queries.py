"""The doorway's part on findings and on why a run is not smaller. Cached and guarded as data.py is."""

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.cache import cached_of_run
from fsdp_profile.analysis.findings import evaluate
from fsdp_profile.analysis.findings import why_not_smaller as tests
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.analysis.findings.why_not_smaller import Reason
from fsdp_profile.analysis.run import Run


def findings(ref: RunRef) -> list[Finding]:
    """What the run says about itself, what matters most first."""
    found: list[Finding] = ask(_findings, ref)
    return found


def why_not_smaller(ref: RunRef) -> list[Reason]:
    """The four tests of a run that shards; empty for one that does not."""
    found: list[Reason] = ask(_why_not_smaller, ref)
    return found


def _findings(run: Run) -> list[Finding]:
    return cached_of_run(run, "findings", list[Finding], compute=lambda: evaluate.findings(run))


def _why_not_smaller(run: Run) -> list[Reason]:
    return cached_of_run(run, "why_not_smaller", list[Reason], compute=lambda: tests.why_not_smaller(run))
