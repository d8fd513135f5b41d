"""What a check answers: one question and its verdict, and all of them about a run."""

from dataclasses import dataclass

from fsdp_profile.core.words import Word


class Verdict(Word):
    """What became of one check."""

    OK = "OK"
    BREACH = "BREACH"
    NOT_RECORDED = "NOT_RECORDED"
    """It could not be asked: the run does not tell. Counts as failed, so that a gate never stands open unseen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    """Such as 'max-peak', 'baseline/category/ACTIVATION', 'baseline/unit/layers.2/gathers'."""
    verdict: Verdict
    measured: float | None
    limit: float | None
    """The most that passes, the tolerance included."""
    unit: str
    """bytes, ns, ratio or count."""
    message: str
    """One sentence: what it is, and what moved."""
    rank: int | None = None
    baseline: float | None = None
    """None without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """All answers about one run."""

    run: str
    baselines: tuple[str, ...]
    checks: tuple[Check, ...]
    differences: tuple[str, ...]
    """Why run and baseline may not be comparable."""

    @property
    def failed(self) -> tuple[Check, ...]:
        """Those that did not pass."""
        return tuple(check for check in self.checks if check.verdict is not Verdict.OK)


def not_recorded(name: str, limit: float, unit: str, why: str) -> Check:
    """A limit on what the run does not tell."""
    return Check(name=name, verdict=Verdict.NOT_RECORDED, measured=None, limit=limit, unit=unit, message=why)
