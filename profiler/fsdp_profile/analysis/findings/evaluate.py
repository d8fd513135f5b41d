"""Findings: every rule applied to a run, most important first.

A rule is a function of the run and its worst rank's peak that yields findings, and none for a healthy run.
"""

from collections.abc import Callable, Iterator
from typing import Final

from fsdp_profile.analysis.findings.finding import DOCS, Finding, Severity
from fsdp_profile.analysis.findings.rules import device, memory, time, units
from fsdp_profile.analysis.memory.ledger import Peak, peak
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run

__all__ = ["DOCS", "RULES", "Finding", "Severity", "findings"]

Rule = Callable[[Run, Peak], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (*memory.RULES, *units.RULES, *device.RULES, *time.RULES)

_ORDER: Final = (Severity.PROBLEM, Severity.COSTS, Severity.EXPLAINS)


def findings(run: Run) -> list[Finding]:
    """All findings: problems, then costs by bytes, then explanations; without a peak only those about time."""
    rank = worst_rank(run)
    found = peak(run, rank=rank) if rank is not None else None
    if found is None or not found.allocated_bytes:
        told = [finding for timed in time.TIMED for finding in timed(run, None)]
    else:
        told = [finding for rule in RULES for finding in rule(run, found)]
    return sorted(told, key=lambda f: (_ORDER.index(f.severity), -(f.saves_bytes or 0), -(f.saves_ns or 0)))
