"""Runs side by side: what sharding changed, in bytes and as a share of the baseline.

The baseline is the run that replicates most (DDP first); a reduction is against it.
"""

from dataclasses import dataclass, field

from fsdp_profile.analysis.compare import side_by_side
from fsdp_profile.analysis.compare.losses import Agreement, agreement
from fsdp_profile.analysis.compare.side_by_side import Row, StepCost
from fsdp_profile.analysis.memory.ledger import STATES, Peak
from fsdp_profile.analysis.ranks.overview import rank_summaries, worst_peak, worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.tables import numbers, strings

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
    cost: StepCost
    """What a step of the worst rank costs."""
    losses: Agreement | None = None
    """Whether it trained as the baseline did; None for the baseline, and where losses were not recorded in both."""

    @property
    def waterfall(self) -> list[tuple[Category, int]]:
        """What changed against the baseline's peak, largest first; the changes sum to -saved_bytes."""
        return sorted(((c, delta) for c, delta in self.delta_by_category.items() if delta), key=lambda p: -abs(p[1]))


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
    divided: list[str] = field(default_factory=list)
    """Of them, those on what another number of shards can give at all."""
    phases: list[Row] = field(default_factory=list)
    """The peak of each phase in every run."""
    units: list[Row] = field(default_factory=list)
    """Parameters, gradients and their buffers of each unit at every run's peak; see side_by_side.by_unit."""


def compare(runs: list[Run], *, baseline: Run | None = None) -> Comparison:
    """Compare the worst rank's peaks over the training steps.

    Raises:
        InputError: fewer than two runs, or one without allocator events.
    """
    if len(runs) < 2:
        raise InputError("compare needs at least two runs; record one more with: fsdp-profile run")
    peaks = [comparable_peak(run) for run in runs]
    chosen = runs.index(baseline) if baseline is not None else _baseline(runs)
    base = peaks[chosen]
    compared = [
        ComparedRun(
            run=run,
            peak=found,
            saved_bytes=base.allocated_bytes - found.allocated_bytes,
            reduction_ratio=(base.allocated_bytes - found.allocated_bytes) / base.allocated_bytes,
            delta_by_category=_delta(base, found),
            cost=side_by_side.step_cost(run, rank=side_by_side.slowest_rank(run)),
            losses=agreement(run, runs[chosen]) if run is not runs[chosen] else None,
        )
        for run, found in zip(runs, peaks, strict=True)
    ]
    others = [c for i, c in enumerate(compared) if i != chosen]
    why = [line for c in others for line in _why(c, runs[chosen], name_it=len(runs) > 2)]
    return Comparison(
        baseline=runs[chosen],
        runs=compared,
        differences=differences(runs, runs[chosen]),
        why=why,
        divided=[line for c in others for line in _divided(c, runs[chosen], name_it=len(runs) > 2)],
        phases=side_by_side.by_phase(runs, peaks),
        units=side_by_side.by_unit(runs, peaks),
    )


def waterfall_text(compared: ComparedRun) -> str:
    """The change of the peak by category in words, largest first, as '-3.52 MiB optimizer state, +1.27 MiB ...'."""
    parts = [f"{signed(delta)} {category.label}" for category, delta in compared.waterfall]
    return ", ".join(parts) or "no difference"


def signed(delta_bytes: int) -> str:
    """Bytes with their sign.

    >>> signed(2048), signed(-3), signed(0)
    ('+2.00 KiB', '-3 B', '0 B')
    """
    return f"{'+' if delta_bytes > 0 else ''}{bytes_text(delta_bytes)}"


def comparable_peak(run: Run) -> Peak:
    """The peak that stands for a run.

    Raises:
        InputError: no allocator events of a training step in it.
    """
    found = worst_peak(rank_summaries(run))
    if found is None or found.allocated_bytes == 0:
        raise InputError(f"{run.path}: no allocator events of a training step in it; nothing to compare")
    return found


def _baseline(runs: list[Run]) -> int:
    order = [(_REPLICATES_MOST.index(run.manifest.strategy), _asked_rank(run)) for run in runs]
    return order.index(min(order))


def _asked_rank(run: Run) -> int:
    """Of runs under DDP the one that was asked for as such (`run --as`) comes first, ZeRO-1 last."""
    asked = run.manifest.extra.get("as")
    return 0 if asked == "ddp" else 2 if asked == "zero1" else 1


def _delta(base: Peak, found: Peak) -> dict[Category, int]:
    pairs = ((c, found.by_category.get(c, 0), base.by_category.get(c, 0)) for c in CATEGORIES)
    return {category: mine - theirs for category, mine, theirs in pairs if mine or theirs}


def _why(compared: ComparedRun, base: Run, *, name_it: bool) -> list[str]:
    prefix = f"{compared.run.name}: " if name_it else ""
    changes = [
        f"{prefix}{category.label} {signed(delta)} against {base.name}" for category, delta in compared.waterfall
    ]
    return [*_divided(compared, base, name_it=name_it), *changes]


def _divided(compared: ComparedRun, base: Run, *, name_it: bool) -> list[str]:
    found = _states(compared, base)
    return [f"{compared.run.name}: {found}" if name_it else found] if found else []


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


def differences(runs: list[Run], base: Run) -> list[str]:
    """Why runs may not be comparable with one of them: each line names one thing that differs."""
    found = [f"{run.name} is not complete: its peak is what was seen" for run in runs if was_cut_off(run)]
    for run in runs:
        if run is base:
            continue
        mine, theirs = run.manifest, base.manifest
        facts = (
            ("model", mine.model.name, theirs.model.name),
            ("parameters", mine.model.numel, theirs.model.numel),
            ("parameter dtypes", _dtypes(run), _dtypes(base)),
            ("largest input", _input_text(run), _input_text(base)),
            ("world size", mine.world_size, theirs.world_size),
            ("device", mine.device_name or mine.device_type, theirs.device_name or theirs.device_type),
            ("torch", mine.versions.get("torch"), theirs.versions.get("torch")),
            ("script arguments", " ".join(mine.script_args), " ".join(theirs.script_args)),
        )
        found += [f"{name}: {a} in {run.name}, {b} in {base.name}" for name, a, b in facts if a != b]
    return found


def was_cut_off(run: Run) -> bool:
    """Whether a rank of the run failed; the files of an imported run do not record this."""
    return any(record.ending not in (Ending.COMPLETED, Ending.IMPORTED) for record in run.manifest.ranks)


def _dtypes(run: Run) -> str:
    return ", ".join(sorted(run.manifest.model.dtypes)) or "not recorded"


def _input_text(run: Run) -> str:
    """The largest input of the first rank's steps: another batch, or another sequence length."""
    blocks = run.table("allocations", rank=run.ranks[0])
    is_input = (strings(blocks, "category") == Category.INPUT.value) & (numbers(blocks, "step") >= 0)
    return bytes_text(int(numbers(blocks, "size_bytes")[is_input].max())) if is_input.any() else "not recorded"
