"""What a sharded run would need if its states were replicated: for the DDP run that did not fit. An estimate.

[Note: Replicated states] At every event of the sharded rank: what sharding divides, times the shards; what sharding
needs for a moment (gathered parameters and their buffers), not at all; everything else as measured. DDP's buckets
come on top: a copy of the trainable parameters, for as long as the run. The largest sum is the peak. Activations and
temporaries are thereby those of the sharded run, at their own moments.
"""

from dataclasses import dataclass

import numpy as np

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import STATES, TRANSIENT
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.ingest.tables import numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicatedEstimate:
    """The peak of DDP, estimated from a sharded run; see [Note: Replicated states]."""

    peak_bytes: int
    by_category: dict[Category, int]
    """Categories with bytes at that moment, largest first; they sum to peak_bytes."""
    shards: int
    """Ranks the run's states were divided over."""
    source: str
    """Name of the run it was made from."""


def replicated_estimate(run: Run) -> ReplicatedEstimate | None:
    """DDP's peak from a sharded run's worst rank; None for a run that does not shard, or without allocator events."""
    rank = worst_rank(run)
    if rank is None:
        return None
    units = run.table("units", rank=rank)
    shards = int(numbers(units, "shard_size").max()) if units.num_rows else 1
    if shards < 2:
        return None
    trained = numbers(run.table("memory_samples", rank=rank), "step") >= 0
    bucket_bytes = run.manifest.model.param_bytes * run.manifest.model.trainable_numel // run.manifest.model.numel
    factor = np.array([shards if c in STATES else 0 if c in TRANSIENT else 1 for c in CATEGORIES])
    extra = np.array([bucket_bytes if c is Category.BUCKET else 0 for c in CATEGORIES])
    highest = np.zeros(len(CATEGORIES), np.int64)
    for piece in ledger.pieces(run, rank=rank):
        mine = trained[piece.event]
        series = np.stack([held[mine] for held in piece.by_category.values()]) * factor[:, None] + extra[:, None]
        total = series.sum(axis=0)
        if len(total) and total.max() > highest.sum():
            highest = series[:, total.argmax()]
    sizes = sorted(((c, int(held)) for c, held in zip(CATEGORIES, highest, strict=True) if held), key=lambda i: -i[1])
    return ReplicatedEstimate(peak_bytes=int(highest.sum()), by_category=dict(sizes), shards=shards, source=run.name)
