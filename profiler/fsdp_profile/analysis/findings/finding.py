"""A finding: one claim with its evidence, the next action, and what that saves."""

from dataclasses import dataclass
from typing import Final

from fsdp_profile.core.words import Word

DOCS: Final = "docs/findings.md"


class Severity(Word):
    """How much a finding matters."""

    PROBLEM = "PROBLEM"
    """Something is wrong: wrong results, a leak, a request that failed."""
    COSTS = "COSTS"
    """Memory or time that could be saved."""
    EXPLAINS = "EXPLAINS"
    """Nothing is wrong: why a number is what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One claim about one run."""

    rule: str
    """Name of the rule, and of its paragraph in docs/findings.md."""
    severity: Severity
    claim: str
    """One sentence with its numbers."""
    evidence: dict[str, int | float | str]
    """The numbers of the claim: bytes, ns, ratios."""
    action: str
    """What to do; '' where there is nothing to do."""
    saves_bytes: int | None = None
    """At the peak of the worst rank; None where it is not known."""
    saves_ns: int | None = None
    """Per step."""
    is_estimate: bool = False
    """saves_bytes or saves_ns follows from a rule, not from measured bytes or time."""
    rank: int | None = None
    unit: str | None = None
