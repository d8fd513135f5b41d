"""The results of a check: one check with its verdict, and all checks of a run."""

from dataclasses import dataclass

from fsdp_profile.core.words import Word


class Verdict(Word):
    """The result of one check."""

    OK = "OK"
    BREACH = "BREACH"
    NOT_RECORDED = "NOT_RECORDED"
    """The run does not hold the measurement. This counts as failed, so that a missing measurement never passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check and its result."""

    name: str
    """Such as 'max-peak', 'baseline/category/ACTIVATION', 'baseline/unit/layers.2/gathers'."""
    verdict: Verdict
    measured: float | None
    limit: float | None
    """The largest value that passes, including the tolerance."""
    unit: str
    """bytes, ns, ratio or count."""
    message: str
    """One sentence: what was measured, and what changed."""
    rank: int | None = None
    baseline: float | None = None
    """None without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """All checks of one run."""

    run: str
    baselines: tuple[str, ...]
    checks: tuple[Check, ...]
    differences: tuple[str, ...]
    """Why run and baseline may not be comparable."""

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if check.verdict is not Verdict.OK)


def not_recorded(name: str, limit: float, unit: str, why: str) -> Check:
    """A check on a measurement that the run does not hold."""
    return Check(name=name, verdict=Verdict.NOT_RECORDED, measured=None, limit=limit, unit=unit, message=why)
