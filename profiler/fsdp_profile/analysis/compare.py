"""Runs side by side: what sharding changed, in bytes and as a share of the baseline.

The baseline is the run that replicates most (DDP first); a reduction is against it.
"""

from dataclasses import dataclass

from fsdp_profile.analysis import memory
from fsdp_profile.analysis.memory import STATES, Peak
from fsdp_profile.analysis.ranks import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.errors import InputError
from fsdp_profile.humanize import bytes_text
from fsdp_profile.ingest.tables import numbers
from fsdp_profile.schema import CATEGORIES, Category, Strategy

_REPLICATES_MOST = (Strategy.NONE, Strategy.DDP, Strategy.HSDP, Strategy.FSDP1, Strategy.FSDP2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRun:
    """The worst rank's peak of one run, against the baseline."""

    run: Run
    peak: Peak
    saved_bytes: int
    """Baseline peak minus this one; negative when this run needs more."""
    reduction_ratio: float
    """saved_bytes as a share of the baseline's peak; 0 for the baseline."""
    delta_by_category: dict[Category, int]
    """This run's bytes minus the baseline's at their peaks, categories with bytes in either, schema order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two or more runs on one scale."""

    baseline: Run
    runs: list[ComparedRun]
    """In the order given."""
    differences: list[str]
    """Why the runs may not be comparable: each line names one thing that differs. Empty when nothing does."""
    why: list[str]
    """Sentences that explain the change of the peak against the baseline, largest part first."""


def compare(runs: list[Run], *, baseline: Run | None = None) -> Comparison:
    """Compare the worst rank's peaks over the training steps.

    Raises:
        InputError: fewer than two runs, or one without allocator events.
    """
    if len(runs) < 2:
        raise InputError("compare needs at least two runs; record one more with: fsdp-profile run")
    peaks = [_worst_peak(run) for run in runs]
    chosen = runs.index(baseline) if baseline is not None else _baseline(runs)
    base = peaks[chosen]
    compared = [
        ComparedRun(
            run=run,
            peak=found,
            saved_bytes=base.allocated_bytes - found.allocated_bytes,
            reduction_ratio=(base.allocated_bytes - found.allocated_bytes) / base.allocated_bytes,
            delta_by_category=_delta(base, found),
        )
        for run, found in zip(runs, peaks, strict=True)
    ]
    why = [line for i, c in enumerate(compared) if i != chosen for line in _why(c, runs[chosen], len(runs) > 2)]
    return Comparison(baseline=runs[chosen], runs=compared, differences=differences(runs, runs[chosen]), why=why)


def _worst_peak(run: Run) -> Peak:
    rank = worst_rank(run)
    found = memory.peak(run, rank=rank) if rank is not None else None
    if found is None or found.allocated_bytes == 0:
        raise InputError(f"{run.path}: no allocator events of a training step in it; nothing to compare")
    return found


def _baseline(runs: list[Run]) -> int:
    order = [_REPLICATES_MOST.index(run.manifest.strategy) for run in runs]
    return order.index(min(order))


def _delta(base: Peak, found: Peak) -> dict[Category, int]:
    pairs = ((c, found.by_category.get(c, 0), base.by_category.get(c, 0)) for c in CATEGORIES)
    return {category: mine - theirs for category, mine, theirs in pairs if mine or theirs}


def _why(compared: ComparedRun, base: Run, name_it: bool) -> list[str]:
    changes = sorted(compared.delta_by_category.items(), key=lambda item: -abs(item[1]))
    prefix = f"{compared.run.name}: " if name_it else ""
    divided = _states(compared, base)
    return [*([f"{prefix}{divided}"] if divided else []), *_changes(changes, prefix, base)]


def _states(compared: ComparedRun, base: Run) -> str:
    """What dividing the states over another number of ranks can give, where both runs shard; '' elsewhere."""
    shards, base_shards = _shard_size(compared.run, compared.peak.rank), _shard_size(base, worst_rank(base) or 0)
    if min(shards, base_shards) < 2 or shards == base_shards:
        return ""
    delta = sum(compared.delta_by_category.get(category, 0) for category in STATES)
    return (
        f"states (parameters, gradients, optimizer) {'+' if delta > 0 else '-'}{bytes_text(abs(delta))} against "
        f"{base.name}: all that {shards} instead of {base_shards} shards can change; the rest is activations, gathered "
        "units, buffers and cache"
    )


def _shard_size(run: Run, rank: int) -> int:
    sizes = numbers(run.table("units", rank=rank), "shard_size")
    return int(sizes.max()) if len(sizes) else 1


def _changes(changes: list[tuple[Category, int]], prefix: str, base: Run) -> list[str]:
    return [
        f"{prefix}{category} {'+' if delta > 0 else '-'}{bytes_text(abs(delta))} against {base.name}"
        for category, delta in changes
        if delta
    ]


def differences(runs: list[Run], base: Run) -> list[str]:
    """Why runs may not be comparable with one of them: each line names one thing that differs."""
    found = []
    for run in runs:
        if run is base:
            continue
        mine, theirs = run.manifest, base.manifest
        facts = (
            ("model", mine.model.name, theirs.model.name),
            ("parameters", mine.model.numel, theirs.model.numel),
            ("parameter dtypes", sorted(mine.model.dtypes), sorted(theirs.model.dtypes)),
            ("world size", mine.world_size, theirs.world_size),
            ("device", mine.device_name or mine.device_type, theirs.device_name or theirs.device_type),
            ("torch", mine.versions.get("torch"), theirs.versions.get("torch")),
            ("script arguments", " ".join(mine.script_args), " ".join(theirs.script_args)),
        )
        found += [f"{name}: {a} in {run.name}, {b} in {base.name}" for name, a, b in facts if a != b]
    return found
