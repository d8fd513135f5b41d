"""The doorway's part on findings and on why a run is not smaller. Cached and guarded as data.py is."""

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis import findings as rules
from fsdp_profile.analysis import why_not_smaller as tests
from fsdp_profile.analysis.finding import Finding
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.stored import stored
from fsdp_profile.analysis.why_not_smaller import Reason


def findings(ref: RunRef) -> list[Finding]:
    """What the run says about itself, what matters most first."""
    found: list[Finding] = ask(_findings, ref)
    return found


def why_not_smaller(ref: RunRef) -> list[Reason]:
    """The four tests of a run that shards; empty for one that does not."""
    found: list[Reason] = ask(_why_not_smaller, ref)
    return found


def _findings(run: Run) -> list[Finding]:
    return stored(run, "findings", rules.findings, type_=list[Finding])


def _why_not_smaller(run: Run) -> list[Reason]:
    return stored(run, "why_not_smaller", tests.why_not_smaller, type_=list[Reason])
