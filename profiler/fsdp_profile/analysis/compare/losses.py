"""Whether two recordings of one script trained the same: the losses that backward was called on, side by side.

[Note: Equal to rounding] Strategies sum gradients in another order, so losses agree to the last digits only, and less
the more steps were taken. Equal here means a relative difference of at most 1e-5 where everything is computed in fp32,
and of 1 % where one of the runs computes in bf16 or fp16, or in the other's autocast.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.tables import numbers, strings

TOLERANCE_FULL: Final = 1e-5
TOLERANCE_REDUCED: Final = 1e-2
_FULL: Final = ("float32", "float64", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepAgreement:
    """One step of two runs."""

    step: int
    loss: float
    """The baseline's first loss of the step on its first rank."""
    difference: float
    """The largest absolute difference over all ranks and micro-steps; infinite where only one was finite."""
    ratio: float
    """The largest difference relative to the baseline's loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The losses of a run against the baseline's."""

    steps: tuple[StepAgreement, ...]
    """The steps recorded in both, in order."""
    num_losses: int
    """Compared, over all ranks."""
    tolerance_ratio: float
    """See [Note: Equal to rounding]."""

    @property
    def worst(self) -> StepAgreement:
        """The step with the largest relative difference."""
        return max(self.steps, key=lambda s: s.ratio)

    @property
    def is_equal(self) -> bool:
        """Every loss equals the baseline's to rounding."""
        return self.worst.ratio <= self.tolerance_ratio


def agreement(run: Run, base: Run) -> Agreement | None:
    """The losses of both runs; None where one has none, or other ranks or another number of backwards a step."""
    if run.ranks != base.ranks:
        return None
    pairs = []
    for rank in run.ranks:
        mine, theirs = _losses(run, rank), _losses(base, rank)
        both = {step for step, _ in mine} & {step for step, _ in theirs}
        keys = sorted(key for key in mine if key[0] in both)
        if not keys or keys != sorted(key for key in theirs if key[0] in both):
            return None
        pairs += [(key[0], mine[key], theirs[key]) for key in keys]
    steps = []
    for step in sorted({step for step, _, _ in pairs}):
        here = [(a, b) for at, a, b in pairs if at == step]
        apart = [_apart(a, b) for a, b in here]
        ratios = [
            gap / abs(b) if gap and b and np.isfinite(b) else gap for gap, (_, b) in zip(apart, here, strict=True)
        ]
        steps.append(StepAgreement(step=step, loss=here[0][1], difference=max(apart), ratio=max(ratios)))
    tolerance = TOLERANCE_FULL if _is_full(run) and _is_full(base) else TOLERANCE_REDUCED
    return Agreement(steps=tuple(steps), num_losses=len(pairs), tolerance_ratio=tolerance)


def _losses(run: Run, rank: int) -> dict[tuple[int, int], float]:
    table = run.table("losses", rank=rank)
    loss: np.ndarray[Any, Any] = table.column("loss").to_numpy(zero_copy_only=False).astype(float)
    keys = zip(numbers(table, "step").tolist(), numbers(table, "micro_step").tolist(), strict=True)
    return dict(zip(keys, loss.tolist(), strict=True))


def _apart(one: float, other: float) -> float:
    if np.isnan(one) or np.isnan(other):  # not finite is stored as null
        return 0.0 if np.isnan(one) and np.isnan(other) else float("inf")
    return abs(one - other)


def _is_full(run: Run) -> bool:
    return all(word in _FULL for rank in run.ranks for word in strings(run.table("units", rank=rank), "compute_dtype"))
