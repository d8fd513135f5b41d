"""Why a sharded run is not smaller: four tests, each with the run's own values.

The four are those that maintainers ask for when somebody reports that FSDP needs as much memory as DDP: how it was
measured, what activations take, over how many ranks the states are divided, and whether the model was wrapped in units.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory.device_waterfall import waterfall
from fsdp_profile.analysis.memory.ledger import STATES, TRANSIENT, Peak, peak
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.ingest.tables import numbers
from fsdp_profile.ingest.units import is_sharded

Ints = np.ndarray[Any, np.dtype[np.int64]]

DOMINATES: Final = 0.5
LARGEST: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One of the four tests."""

    question: str
    answer: str
    """With the run's values."""
    is_reason: bool | None
    """Whether it keeps the run large; None where what it needs was not recorded."""


def why_not_smaller(run: Run) -> list[Reason]:
    """The four tests of a run that shards; empty for one that does not, or without allocator events."""
    rank = worst_rank(run)
    found = peak(run, rank=rank) if rank is not None else None
    if rank is None or found is None:
        return []
    units = run.table("units", rank=rank)
    sharded = is_sharded(units)
    if not sharded.any():
        return []
    shards = int(numbers(units, "shard_size")[sharded].max())
    numel, whole = numbers(units, "numel")[sharded], numbers(units, "unsharded_bytes")[sharded]
    return [_measured_by(run, found), _activations(found), _ranks(found, shards), _units(numel, whole)]


def _measured_by(run: Run, found: Peak) -> Reason:
    question, held = "How was it measured?", waterfall(run, rank=found.rank)
    allocated = f"Tensors hold {bytes_text(found.allocated_bytes)}"
    if held is None:
        why = (
            "on CPU there is no pool and no nvidia-smi"
            if run.manifest.device_type == "cpu"
            else "nothing else was recorded"
        )
        return Reason(question=question, answer=f"{allocated}; {why}.", is_reason=None)
    reserved, used = bytes_text(held.reserved_bytes), bytes_text(held.device_used_bytes)
    known = [size for size in (held.reserved_bytes, held.device_used_bytes) if size is not None]
    return Reason(
        question=question,
        answer=f"{allocated}, the allocator reserves {reserved}, nvidia-smi reports {used}: only the first becomes "
        "smaller by sharding.",
        is_reason=max(known) > 2 * found.allocated_bytes if known else None,
    )


def _activations(found: Peak) -> Reason:
    held = found.by_category.get(Category.ACTIVATION, 0)
    share = held / found.allocated_bytes if found.allocated_bytes else 0.0
    return Reason(
        question="Do activations dominate?",
        answer=f"Activations are {bytes_text(held)} of {bytes_text(found.allocated_bytes)} ({ratio_text(share)}); "
        "sharding does not divide them.",
        is_reason=share >= DOMINATES,
    )


def _ranks(found: Peak, shards: int) -> Reason:
    states, transient = found.bytes_of(STATES), found.bytes_of(TRANSIENT)
    saved = states * (shards - 1)
    return Reason(
        question="Are there enough ranks?",
        answer=f"{shards} ranks keep {bytes_text(states)} of states each and save {bytes_text(saved)}; gathered "
        f"parameters and buffers take {bytes_text(transient)} back.",
        is_reason=2 * transient >= saved,
    )


def _units(numel: Ints, whole: Ints) -> Reason:
    share = float(numel.max() / numel.sum()) if numel.sum() else 0.0
    return Reason(
        question="Is the model wrapped in units?",
        answer=f"{len(numel)} unit{'s' if len(numel) != 1 else ''}; the largest holds {ratio_text(share)} of the "
        f"parameters and gathers {bytes_text(int(whole.max()))} at once.",
        is_reason=share >= LARGEST,
    )
