"""Check whether a run stays within limits and costs no more than a baseline, for continuous integration."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdp_profile.analysis.check.baseline import against_baseline, slowdown
from fsdp_profile.analysis.check.facts import complete_steps, facts_of
from fsdp_profile.analysis.check.result import Check, CheckReport, Verdict, not_recorded
from fsdp_profile.analysis.compare.peaks import differences
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.growth import MIN_STEPS, growth
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.time.breakdown import step_breakdowns
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.core.schema import Phase
from fsdp_profile.core.words import label_of

__all__ = ["Check", "CheckReport", "Limits", "Verdict", "check"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The most that a run may use; None is no limit."""

    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    exposed_ratio: float | None = None
    """Exposed collective time / time of the complete steps."""
    unknown_ratio: float | None = None
    """Unknown bytes / peak."""
    growth_bytes_per_step: int | None = None
    slowdown_ratio: float | None = None
    """Growth of the median step against the baseline's; 0.1 allows 10 % more."""


def check(run: Run, *, limits: Limits, baselines: Sequence[Run] = ()) -> CheckReport:
    """Hold a run against limits and a baseline, which may be several recordings of the same script.

    Raises:
        InputError: a table is damaged.
    """
    found = list(_limits(run, limits))
    if baselines:
        found += against_baseline(facts_of(run), [facts_of(base) for base in baselines])
        if limits.slowdown_ratio is not None:
            found.append(slowdown(run, baselines, limits.slowdown_ratio))
    different = differences([run, *baselines], run) if baselines else []
    return CheckReport(
        run=run.name,
        baselines=tuple(base.name for base in baselines),
        checks=tuple(found),
        differences=tuple(different),
    )


def _limits(run: Run, limits: Limits) -> Iterator[Check]:
    ranks = rank_summaries(run)
    if limits.peak_bytes is not None:
        worst = max((r.peak for r in ranks if r.peak), key=lambda p: (p.allocated_bytes, -p.rank), default=None)
        where = ""
        if worst is not None:
            most = ", ".join(f"{c.label} {bytes_text(size)}" for c, size in list(worst.by_category.items())[:3])
            unit = f", active unit {unit_text(worst.unit_name)}" if worst.unit_name is not None else ""
            where = f" on rank {worst.rank} in {label_of(Phase, worst.phase)} of step {worst.step}{unit}: {most}"
        size, rank = (worst.allocated_bytes, worst.rank) if worst is not None else (None, None)
        yield _bytes_limit("max-peak", "peak", size, limits.peak_bytes, where, rank)
    if limits.reserved_bytes is not None:
        known = [(r.reserved_peak_bytes, -r.rank) for r in ranks if r.reserved_peak_bytes is not None]
        size, rank = (max(known)[0], -max(known)[1]) if known else (None, None)
        where = f" on rank {rank}"
        yield _bytes_limit("max-reserved", "reserved", size, limits.reserved_bytes, where, rank)
    if limits.exposed_ratio is not None:
        shares = {rank: share for rank in run.ranks if (share := _exposed_ratio(run, rank)) is not None}
        yield _ratio_limit("max-exposed", "exposed communication", shares, limits.exposed_ratio, "of the steps' time")
    if limits.unknown_ratio is not None:
        shares = {r.rank: r.peak.unknown_ratio for r in ranks if r.peak}
        yield _ratio_limit("max-unknown", "unknown", shares, limits.unknown_ratio, "of the peak")
    if limits.growth_bytes_per_step is not None:
        yield _growth_limit(run, limits.growth_bytes_per_step)


def _bytes_limit(name: str, what: str, size: int | None, limit: int, where: str, rank: int | None) -> Check:
    if size is None:
        return not_recorded(name, limit, "bytes", f"{what}: not recorded, so the limit cannot be checked")
    is_over = size > limit
    than = f"{bytes_text(size - limit)} over" if is_over else "within"
    message = f"{what} {bytes_text(size)}, {than} the limit of {bytes_text(limit)}{where}"
    return Check(
        name=name, verdict=Verdict.BREACH if is_over else Verdict.OK, measured=size, limit=limit, unit="bytes",
        message=message, rank=rank,
    )  # fmt: skip


def _ratio_limit(name: str, what: str, shares: dict[int, float], limit: float, of: str) -> Check:
    if not shares:
        return not_recorded(name, limit, "ratio", f"{what}: not recorded, so the limit cannot be checked")
    rank = max(shares, key=lambda r: (shares[r], -r))
    is_over = shares[rank] > limit
    message = f"{what} {ratio_text(shares[rank])} {of} on rank {rank}, {'over' if is_over else 'within'} the limit of "
    return Check(
        name=name, verdict=Verdict.BREACH if is_over else Verdict.OK, measured=shares[rank], limit=limit, unit="ratio",
        message=message + ratio_text(limit), rank=rank,
    )  # fmt: skip


def _growth_limit(run: Run, limit: int) -> Check:
    name = "max-growth-per-step"
    timed = [rank for rank in run.ranks if len(ledger.peak_of_steps(run, rank=rank)) > MIN_STEPS]
    if not timed:
        why = f"growth: needs {MIN_STEPS + 1} recorded steps, so the limit cannot be checked"
        return not_recorded(name, limit, "bytes", why)
    by_rank = {rank: growth(run, rank=rank) for rank in timed}
    total = {rank: sum(one.bytes_per_step for one in found) for rank, found in by_rank.items()}
    rank = max(total, key=lambda r: (total[r], -r))
    is_over = total[rank] > limit
    sites = "".join(
        f"; {label_of(Category, one.category)} {bytes_text(one.bytes_per_step)} a step"
        + (f", most from {one.sites[0].operator or 'an unnamed operator'}" if one.sites else "")
        for one in by_rank[rank]
    )
    message = (
        f"memory grows {bytes_text(total[rank])} a step on rank {rank}, {'over' if is_over else 'within'} the limit of "
        f"{bytes_text(limit)}{sites}"
    )
    return Check(
        name=name, verdict=Verdict.BREACH if is_over else Verdict.OK, measured=total[rank], limit=limit, unit="bytes",
        message=message, rank=rank,
    )  # fmt: skip


def _exposed_ratio(run: Run, rank: int) -> float | None:
    complete = complete_steps(run, rank)
    steps = [found for step, found in step_breakdowns(run, rank=rank).items() if step in complete]
    span = sum(step.span_ns for step in steps)
    return sum(step.exposed_ns for step in steps) / span if span else None
