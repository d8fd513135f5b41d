"""The verdicts of a check in words."""

from fsdp_profile.analysis.check.result import Check, CheckReport, Verdict

VERDICT_WORDS = {Verdict.OK: "ok", Verdict.BREACH: "BREACH", Verdict.NOT_RECORDED: "NOT RECORDED"}


def is_asked_for(check: Check) -> bool:
    """Limits that were given, and the peak; the rest of a baseline is told where it fails."""
    return "/" not in check.name or check.name == "baseline/peak"


def summary(found: CheckReport) -> str:
    """One line: how many failed, against what."""
    against = f" against {', '.join(found.baselines)}" if found.baselines else ""
    failed = len(found.failed)
    if not failed:
        return f"all {len(found.checks)} checks hold{against}"
    return f"{failed} of {len(found.checks)} checks failed{against}"
