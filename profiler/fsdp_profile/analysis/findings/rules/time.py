"""Findings about time and about differences between ranks."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary, cross_rank_summary
from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.ranks.overview import rank_summaries, step_durations_ns
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.time.breakdown import exposed_by_step, step_breakdowns
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.core.words import label_of

MIN_EXPOSED: Final = 0.2
"""Of a step."""
MIN_WAIT: Final = 0.1
"""Of all ranks' steps."""
MIN_TIMES_LAST: Final = 0.6
"""Share of the matched collectives below which coming last is taken for chance."""
MIN_IMBALANCE: Final = 0.05
"""Share of the highest peak below which a difference is not reported."""


def exposed_gathers(run: Run, peak: Peak | None) -> Iterator[Finding]:
    """All-gathers that are not hidden behind compute take much of a step; the first step is left out."""
    if run.manifest.device_type == "cpu" or not run.ranks:
        return  # there the host waits for every collective: nothing can overlap
    rank = peak.rank if peak is not None else run.ranks[0]
    spans = {step: found.span_ns for step, found in step_breakdowns(run, rank=rank).items()}
    rows = exposed_by_step(run, rank=rank).to_pylist()
    exposed: dict[int, int] = {}
    for row in rows:
        if row["kind"] == CollectiveKind.ALL_GATHER.value and row["exposed_ns"] is not None:
            exposed[row["step"]] = exposed.get(row["step"], 0) + row["exposed_ns"]
    steps = [s for s in exposed if s in spans and (s > min(spans) or len(spans) == 1)]
    if not steps:
        return
    span, lost = (int(np.median([of[s] for s in steps])) for of in (spans, exposed))
    if lost < MIN_EXPOSED * span:
        return
    yield Finding(
        rule="exposed-gathers",
        severity=Severity.COSTS,
        claim=f"{ns_text(lost)} of all-gathers in a {ns_text(span)} step are not hidden behind compute "
        f"({ratio_text(lost / span)}).",
        evidence={"exposed_ns": lost, "span_ns": span},
        action="Prefetch one unit ahead in forward; larger batches or larger units give each gather more to hide "
        "behind; HSDP gathers inside a node.",
        saves_ns=lost,
        rank=rank,
    )


def cross_rank(run: Run, peak: Peak | None) -> Iterator[Finding]:
    """Late ranks, and ranks that never joined, found by matching the collectives of all ranks."""
    found = cross_rank_summary(run)
    yield from _straggler(run, found)
    yield from _never_joined(found)


def _straggler(run: Run, found: CrossRankSummary) -> Iterator[Finding]:
    """One rank comes last again and again, and the others wait."""
    if not found.stragglers:
        return
    worst = found.stragglers[0]
    total = sum(int(step_durations_ns(run, rank=rank).sum()) for rank in run.ranks)
    is_chance = worst.times_last < MIN_TIMES_LAST * found.num_matched
    if not total or is_chance or worst.wait_caused_ns < MIN_WAIT * total:
        return
    steps = len(step_durations_ns(run, rank=worst.rank)) or 1
    busy = f", most of it at unit {unit_text(worst.worst_unit)}" if worst.worst_unit is not None else ""
    yield Finding(
        rule="straggler",
        severity=Severity.COSTS,
        claim=f"Rank {worst.rank} came last in {worst.times_last} of {found.num_matched} collectives{busy} and made "
        f"the others wait {ns_text(worst.wait_caused_ns)} in total, {ratio_text(worst.wait_caused_ns / total)} of all "
        "ranks' steps.",
        evidence={"rank": worst.rank, "times_last": worst.times_last, "wait_caused_ns": worst.wait_caused_ns},
        action="Look at that rank's data loading, its share of the work (sequence lengths, experts) and its device.",
        saves_ns=worst.wait_caused_ns // (steps * max(len(run.ranks) - 1, 1)),
        is_estimate=True,
        rank=worst.rank,
        unit=worst.worst_unit,
    )


def _never_joined(found: CrossRankSummary) -> Iterator[Finding]:
    """A rank did not reach a collective that others began: a hang, or a rank that died."""
    for lost in found.never_joined:
        if lost.recording_ended:
            continue
        more = f", nor {lost.num_more} more of its group" if lost.num_more else ""
        of = f" of {unit_text(lost.unit)}" if lost.unit is not None else ""
        yield Finding(
            rule="never-joined",
            severity=Severity.PROBLEM,
            claim=f"Rank {lost.rank} never joined {label_of(CollectiveKind, lost.kind)} #{lost.index}{of} in step "
            f"{lost.step}{more}.",
            evidence={"rank": lost.rank, "index": lost.index, "step": lost.step, "num_more": lost.num_more},
            action="The others wait for it: look at that rank's traceback, or at a branch that only some ranks take.",
            rank=lost.rank,
            unit=lost.unit,
        )


def imbalance(run: Run, peak: Peak) -> Iterator[Finding]:
    """The ranks' peaks differ: the worst one decides what fits."""
    peaks = [found.peak for found in rank_summaries(run) if found.peak is not None]
    if len(peaks) < 2:
        return
    low = min(peaks, key=lambda p: (p.allocated_bytes, p.rank))
    apart = peak.allocated_bytes - low.allocated_bytes
    if apart < MIN_IMBALANCE * peak.allocated_bytes:
        return
    change = {c: peak.by_category.get(c, 0) - low.by_category.get(c, 0) for c in {*peak.by_category, *low.by_category}}
    most = max(change, key=lambda c: (change[c], str(c)))
    yield Finding(
        rule="imbalance",
        severity=Severity.COSTS,
        claim=f"Rank {peak.rank} peaks at {bytes_text(peak.allocated_bytes)}, rank {low.rank} at "
        f"{bytes_text(low.allocated_bytes)}: {bytes_text(apart)} apart, most of it {most.label} "
        f"(+{bytes_text(change[most])}).",
        evidence={"highest_bytes": peak.allocated_bytes, "lowest_bytes": low.allocated_bytes, "category": str(most)},
        action="Even out what differs: sequence lengths, experts, tensors that only rank 0 keeps.",
        saves_bytes=apart,
        is_estimate=True,
        rank=peak.rank,
    )


TIMED: Final = (exposed_gathers, cross_rank)
"""Rules that need no memory: they also apply to traces without it."""

RULES: Final = (*TIMED, imbalance)
