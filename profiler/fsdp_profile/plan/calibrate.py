"""What a measured run says about configurations that were not measured.

[Note: Replay] The ledger of a measured step is replayed event by event with what the new configuration changes:
states and the optimizer's temporaries in proportion to the shards, activations and temporaries in proportion to batch
and sequence, gathered parameters and unreduced gradients as the new layout holds them. The peak is that of the
changed ledger, so it may move to another moment. For another number of shards that is nearly all there is to know;
for another layout the units' transient is modelled, and a simulation of the script (`calibrated`) knows more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.memory.ledger import STATES, Timeline
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import InputError, UsageError
from fsdp_profile.core.schema import Phase
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.plan.formulas.activations import Checkpointing
from fsdp_profile.plan.formulas.costs import Basis, PlanRow
from fsdp_profile.plan.formulas.strategies import FULLY_SHARDED, Layout, World
from fsdp_profile.plan.measured import Sizes, layout_of, most_of_states, sizes_of, world_of
from fsdp_profile.plan.simulate.simulation import Simulation, simulated_row

Floats = np.ndarray[Any, np.dtype[np.float64]]

_KEPT_RATIO: Final = 2 / 34
"""Of a layer's activations, its input: what full checkpointing keeps (see activations.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A configuration to predict, as what it changes."""

    layout: Layout
    world: World
    batch_ratio: float = 1.0
    seq_ratio: float = 1.0
    checkpointing: Checkpointing = Checkpointing.NONE
    """FULL: of what was measured without."""
    grad_bytes: int | None = None
    """Bytes of an unreduced gradient's element; None: as measured."""
    accumulates: bool = False
    """Several micro-batches to a step: gradients stay through their forwards."""

    def __post_init__(self) -> None:
        for name in ("batch_ratio", "seq_ratio"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name):g}: give a number above 0")
        if self.checkpointing is Checkpointing.SELECTIVE:
            raise UsageError(
                "--ac selective: a recording does not separate attention scores from other activations; "
                "give none or full"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """A prediction and its measurement."""

    predicted: PlanRow
    measured: PlanRow

    @property
    def error_ratio(self) -> float:
        """Of the prediction, against the measurement."""
        assert self.predicted.peak_bytes is not None and self.measured.peak_bytes is not None
        return self.predicted.peak_bytes / self.measured.peak_bytes - 1


def measured_row(run: Run) -> PlanRow:
    """A run's own peak as a row.

    Raises:
        InputError: no allocator events in it.
    """
    rank = _rank_of(run)
    found = memory.peak(run, rank=rank)
    assert found is not None
    states = most_of_states(run, rank=rank)
    by = {category: float(size) for category, size in found.by_category.items()}
    row = _row(layout_of(run), world_of(run).size, by, states=states, basis=Basis.MEASURED)
    return replace(row, remark=f"measured, peak in {found.phase.lower()}")


def predict(run: Run, targets: Sequence[Target]) -> list[PlanRow]:
    """One row per target, by [Note: Replay] of the run's worst rank.

    Raises:
        InputError: no allocator events in it.
    """
    rank = _rank_of(run)
    sizes = sizes_of(run, rank=rank)
    steady = _steady_steps(run, rank)
    ledger, phases = _ledger(run, rank, steady[-1])
    spread = _spread(run)
    return [_predict_one(ledger, phases, sizes, target, spread) for target in targets]


def calibrated(target: Simulation, *, source: Simulation, run: Run) -> PlanRow:
    """A simulated row, corrected by what a simulation of the measured configuration missed there.

    What it missed lies mostly with the transport, so that it is added only where the target communicates in the same
    way; elsewhere it is the error bar.
    """
    measured = measured_row(run)
    assert measured.peak_bytes is not None
    row = simulated_row(target)
    assert row.peak_bytes is not None
    missed = measured.peak_bytes - source.peak.allocated_bytes
    is_alike = (row.layout in FULLY_SHARDED) == (measured.layout in FULLY_SHARDED)
    added = missed if is_alike else 0
    by = dict(row.by_category)
    if added:
        by[str(Category.TEMPORARY)] = max(by.get(str(Category.TEMPORARY), 0) + added, 0)
    return replace(
        row,
        peak_bytes=row.peak_bytes + added,
        by_category=by,
        basis=Basis.CALIBRATED,
        error_ratio=abs(missed) / measured.peak_bytes,
        remark=f"simulated {'with' if added else 'without'} {missed:+,} B that the measured run had more",
    )


def _rank_of(run: Run) -> int:
    rank = worst_rank(run)
    if rank is None:
        raise InputError(f"{run.path}: no allocator events of a training step in it; record it again with memory")
    return rank


def _steady_steps(run: Run, rank: int) -> list[int]:
    """Complete steps after the first, which has no optimizer states in forward; the first where it is the only one."""
    steps = run.table("steps", rank=rank)
    whole = steps.column("complete").to_numpy(zero_copy_only=False)
    found = [int(s) for s in numbers(steps, "step")[whole] if s >= 0]
    if not found:
        raise InputError(f"{run.path}: no complete step in it; record the run again, over at least two steps")
    return found[1:] or found


def _ledger(run: Run, rank: int, step: int) -> tuple[Timeline, np.ndarray[Any, Any]]:
    """The ledger of one step, and the phase at each of its events."""
    samples = run.table("memory_samples", rank=rank)
    ledger = memory.timeline(run, rank=rank, step=step)
    return ledger, strings(samples, "phase").astype(str)[ledger.event]


def _spread(run: Run) -> float:
    """How far the peaks of ranks and steady steps lie apart, of the highest."""
    peaks = [
        found.allocated_bytes
        for rank in run.ranks
        for found in memory.peak_of_steps(run, rank=rank)
        if found.step in _steady_steps(run, rank)
    ]
    return (max(peaks) - min(peaks)) / max(peaks) if peaks else 0.0


def _predict_one(
    ledger: Timeline, phases: np.ndarray[Any, Any], sizes: Sizes, target: Target, spread: float
) -> PlanRow:
    before = {category: values.astype(np.float64) for category, values in ledger.by_category.items()}
    after = dict(before)
    ratio = sizes.shards / target.world.shards(target.layout)
    for category in (Category.PARAM, Category.OPTIMIZER_STATE, Category.OPTIMIZER_TEMPORARY):
        after[category] = before[category] * (ratio if _is_divided(category, target.layout) else sizes.shards)
    _change_gradients(after, before, sizes, target, ratio)
    _change_transient(after, before, phases, sizes, target)
    _change_activations(after, phases, sizes, target)
    total: Floats = np.sum(list(after.values()), axis=0)
    at = int(np.argmax(total))
    by = {category: float(values[at]) for category, values in after.items() if round(values[at])}
    states = {category: round(float(after[category].max())) for category in STATES}
    row = _row(target.layout, target.world.size, by, states=states, basis=Basis.CALIBRATED)
    is_same = target.layout is sizes.layout
    is_as_measured = is_same and target == Target(layout=target.layout, world=target.world) and ratio == 1
    note = f"peak in {str(phases[at]).lower()}" + ("" if is_same else "; the transient of its units is modelled")
    return replace(row, remark=note, error_ratio=spread if is_as_measured else None)


def _is_divided(category: Category, layout: Layout) -> bool:
    return layout in FULLY_SHARDED or (category is not Category.PARAM and layout is not Layout.DDP)


def _change_gradients(
    after: dict[Category, Floats], before: dict[Category, Floats], sizes: Sizes, target: Target, ratio: float
) -> None:
    kept, on_their_way = before[Category.GRAD], before[Category.UNSHARDED_GRAD]
    whole = kept * sizes.shards
    if target.layout in FULLY_SHARDED or target.layout is Layout.ZERO2:
        after[Category.GRAD] = kept * ratio
    else:
        most = max(float(whole.max()), 1.0)
        after[Category.GRAD] = np.minimum(whole + on_their_way, most) if sizes.is_sharded else whole
    if target.accumulates:
        after[Category.GRAD] = np.full_like(kept, float(after[Category.GRAD].max()))


def _change_transient(
    after: dict[Category, Floats], before: dict[Category, Floats], phases: np.ndarray[Any, Any], sizes: Sizes,
    target: Target,
) -> None:  # fmt: skip
    """Transient bytes of the units: as measured, without it, or as modelled."""
    nothing = np.zeros_like(before[Category.ACTIVATION])
    moving = (Category.UNSHARDED_PARAM, Category.UNSHARDED_GRAD, Category.ALL_GATHER, Category.REDUCE_SCATTER)
    scale = 1.0 if target.grad_bytes is None else target.grad_bytes / sizes.grad_itemsize
    if target.layout is sizes.layout:
        pass  # as measured
    elif target.layout in (Layout.DDP, Layout.ZERO1, Layout.ZERO2):
        for category in moving:
            after[category] = nothing
        if target.layout is not Layout.ZERO2 and sizes.is_sharded:
            after[Category.BUCKET] = nothing + sizes.trained_bytes
    elif not sizes.is_sharded:
        after[Category.BUCKET] = nothing
        _model_transient(after, phases, sizes)
    for category in (Category.UNSHARDED_GRAD, Category.REDUCE_SCATTER):
        after[category] = after[category] * scale
    if target.layout is Layout.FSDP_NO_RESHARD and sizes.layout is not Layout.FSDP_NO_RESHARD:
        _keep_gathered(after, before, phases, sizes)
    elif target.layout in (Layout.FSDP, Layout.HSDP) and sizes.layout is Layout.FSDP_NO_RESHARD:
        most = sizes.root_bytes + sizes.unit_bytes
        after[Category.UNSHARDED_PARAM] = np.minimum(after[Category.UNSHARDED_PARAM], most)
        gathers = np.where(phases == Phase.BACKWARD.value, float(sizes.unit_bytes), 0.0)
        after[Category.ALL_GATHER] = np.maximum(after[Category.ALL_GATHER], gathers)


def _keep_gathered(
    after: dict[Category, Floats], before: dict[Category, Floats], phases: np.ndarray[Any, Any], sizes: Sizes
) -> None:
    """Units stay gathered from their forward to the end of their backward; activations and gradients show how many.

    Backward gathers nothing again.
    """
    is_forward, is_backward = phases == Phase.FORWARD.value, phases == Phase.BACKWARD.value
    done = after[Category.GRAD] / max(float(after[Category.GRAD].max()), 1.0)
    begun = before[Category.ACTIVATION] / max(float(before[Category.ACTIVATION].max()), 1.0)
    share = np.where(is_backward, 1 - done, np.where(is_forward, begun, 0.0))
    after[Category.UNSHARDED_PARAM] = np.maximum(after[Category.UNSHARDED_PARAM], share * sizes.unsharded_bytes)
    after[Category.ALL_GATHER] = np.where(is_backward, 0.0, after[Category.ALL_GATHER])


def _model_transient(after: dict[Category, Floats], phases: np.ndarray[Any, Any], sizes: Sizes) -> None:
    """Of FSDP2: root and one unit gathered, the next one's all-gather, one unit's gradients and their buffer."""
    is_forward, is_backward = phases == Phase.FORWARD.value, phases == Phase.BACKWARD.value
    both = (is_forward | is_backward).astype(np.float64)
    after[Category.UNSHARDED_PARAM] = both * (sizes.root_bytes + sizes.unit_bytes)
    after[Category.ALL_GATHER] = both * sizes.unit_bytes
    after[Category.UNSHARDED_GRAD] = is_backward * float(sizes.unit_bytes)
    after[Category.REDUCE_SCATTER] = is_backward * float(sizes.unit_bytes)


def _change_activations(
    after: dict[Category, Floats], phases: np.ndarray[Any, Any], sizes: Sizes, target: Target
) -> None:
    tokens = target.batch_ratio * target.seq_ratio
    for category in (Category.ACTIVATION, Category.TEMPORARY, Category.INPUT):
        in_loop = (phases == Phase.FORWARD.value) | (phases == Phase.BACKWARD.value)
        factor = np.where(in_loop, tokens, 1.0) if category is Category.TEMPORARY else tokens
        after[category] = after[category] * factor
    if target.checkpointing is Checkpointing.FULL:
        one_layer = float(after[Category.ACTIVATION].max()) / max(sizes.num_units, 1)
        kept = after[Category.ACTIVATION] * _KEPT_RATIO
        after[Category.ACTIVATION] = kept + np.where(phases == Phase.BACKWARD.value, one_layer, 0.0)


def _row(
    layout: Layout, world_size: int, by: dict[Category, float], *, states: dict[Category, int], basis: Basis
) -> PlanRow:
    def of(*categories: Category) -> int:
        return round(sum(by.get(category, 0.0) for category in categories))

    whole = {str(category): round(size) for category, size in sorted(by.items(), key=lambda item: -item[1])}
    return PlanRow(
        layout=layout,
        world_size=world_size,
        param_bytes=states[Category.PARAM],
        grad_bytes=states[Category.GRAD],
        optimizer_bytes=states[Category.OPTIMIZER_STATE],
        gathered_bytes=of(Category.UNSHARDED_PARAM, Category.ALL_GATHER),
        reduced_bytes=of(Category.UNSHARDED_GRAD, Category.REDUCE_SCATTER, Category.BUCKET),
        activation_bytes=of(Category.ACTIVATION),
        traffic_bytes=None,
        peak_bytes=sum(whole.values()),
        basis=basis,
        by_category=whole,
    )
