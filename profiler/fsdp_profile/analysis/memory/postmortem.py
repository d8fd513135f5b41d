"""When a rank ran out of memory: what filled it at that moment, where the other ranks were, what would help.

[Note: Worth of a remedy]
A remedy that would not have held bytes that the ledger shows is worth those bytes ("measured"). One that changes what
is held is worth what its rule says ("estimate"): activation checkpointing leaves the activations of one unit, half a
batch halves activations and inputs, sharding over N ranks leaves 1/N of the states. Worths do not add up.
"""

from dataclasses import dataclass

import numpy as np

from fsdp_profile.analysis.memory.device_waterfall import Waterfall, waterfall
from fsdp_profile.analysis.memory.ledger import STATES, Peak, blocks_at, checkpointing_saves_bytes, peak_at
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Basis, Phase, Strategy
from fsdp_profile.core.words import Word
from fsdp_profile.ingest.tables import numbers, strings


class Worth(Word):
    """How the bytes of a remedy are known; see [Note: Worth of a remedy]."""

    MEASURED = "MEASURED"
    ESTIMATE = "ESTIMATE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One way to need less."""

    action: str
    saves_bytes: int
    worth: Worth
    is_enough: bool | None
    """Alone it would have made room for the request; None where the room there was is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherRank:
    """Another rank at that moment."""

    rank: int
    allocated_bytes: int | None
    """None when its last window was lost."""
    step: int | None
    phase: str | None
    unit_name: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PostMortem:
    """One failed allocation."""

    rank: int
    t_ns: int
    asked_bytes: int | None
    free_bytes: int | None
    """What the device reported as free; None when not recorded."""
    then: Peak
    """What was live, and which unit was active."""
    device: Waterfall | None
    """None on CPU."""
    others: tuple[OtherRank, ...]
    remedies: tuple[Remedy, ...]
    """Most bytes first."""

    @property
    def room_bytes(self) -> int | None:
        """The largest request that would have been granted; None where it is not known."""
        free = [self.free_bytes, self.device.largest_free_bytes if self.device is not None else None]
        known = [size for size in free if size is not None]
        return max(known) if known else None


def post_mortems(run: Run) -> list[PostMortem]:
    """Every failed allocation of every rank, in order of time; empty where none failed."""
    failed = [(rank, row) for rank in run.ranks for row in run.table("ooms", rank=rank).to_pylist()]
    found = [_post_mortem(run, rank, row) for rank, row in failed if run.table("memory_samples", rank=rank).num_rows]
    return sorted(found, key=lambda p: (p.t_ns, p.rank))


def _post_mortem(run: Run, rank: int, row: dict[str, int | None]) -> PostMortem:
    event, t_ns = int(row["event"] or 0), int(row["t_ns"] or 0)
    then = peak_at(run, rank, event)
    device = waterfall(run, rank=rank, event=event)
    bare = PostMortem(
        rank=rank,
        t_ns=t_ns,
        asked_bytes=row["asked_bytes"],
        free_bytes=row["device_free_bytes"],
        then=then,
        device=device,
        others=tuple(_other(run, other, t_ns) for other in run.ranks if other != rank),
        remedies=(),
    )
    need = None
    if bare.asked_bytes is not None and bare.room_bytes is not None:
        need = max(bare.asked_bytes - bare.room_bytes, 0)
    remedies = [
        Remedy(action=action, saves_bytes=saves, worth=worth, is_enough=None if need is None else saves >= need)
        for action, saves, worth in _remedies(run, then, bare)
        if saves > 0
    ]
    fields = {name: getattr(bare, name) for name in PostMortem.__dataclass_fields__}
    return PostMortem(**{**fields, "remedies": tuple(sorted(remedies, key=lambda r: (-r.saves_bytes, r.action)))})


def _other(run: Run, rank: int, t_ns: int) -> OtherRank:
    """The other rank's last event up to that moment, if its recording reaches it."""
    samples = run.table("memory_samples", rank=rank)
    nothing = OtherRank(rank=rank, allocated_bytes=None, step=None, phase=None, unit_name=None)
    if samples.num_rows == 0:
        return nothing
    row = int(np.searchsorted(numbers(samples, "t_ns"), t_ns, side="right")) - 1
    is_over = row == samples.num_rows - 1 and _was_cut_off(run, rank)
    if row < 0 or is_over:
        return nothing
    then = peak_at(run, rank, row)
    return OtherRank(
        rank=rank, allocated_bytes=then.allocated_bytes, step=then.step, phase=then.phase, unit_name=then.unit_name
    )


def _was_cut_off(run: Run, rank: int) -> bool:
    """Its process was killed before it could write its last window."""
    return any(f"rank {rank}: its process was killed" in line for line in run.manifest.warnings)


def _remedies(run: Run, then: Peak, found: PostMortem) -> list[tuple[str, int, Worth]]:
    held = then.by_category
    return [
        *_of_activations(run, then),
        *_of_states(run, then),
        *_of_gathers(run, then),
        ("gradient_as_bucket_view=True: gradients live in the buckets", held.get(Category.BUCKET, 0), Worth.MEASURED),
        (
            "synchronise gradients in every micro-batch: no_sync keeps them unsharded",
            held.get(Category.UNSHARDED_GRAD, 0) if then.phase == Phase.FORWARD else 0,
            Worth.MEASURED,
        ),
        (
            "fused=True or foreach=False: the optimizer's temporaries for all parameters at once",
            held.get(Category.OPTIMIZER_TEMPORARY, 0),
            Worth.MEASURED,
        ),
        *_of_device(found),
    ]


def _of_activations(run: Run, then: Peak) -> list[tuple[str, int, Worth]]:
    half = then.bytes_of((Category.ACTIVATION, Category.INPUT)) // 2
    found = [("half the batch: activations and inputs halve", half, Worth.ESTIMATE)]
    saves = checkpointing_saves_bytes(run, then)
    if saves is not None:
        found.append(("activation checkpointing of each unit: one unit's remain", saves, Worth.ESTIMATE))
    return found


def _of_states(run: Run, then: Peak) -> list[tuple[str, int, Worth]]:
    states = then.bytes_of(STATES)
    ranks = run.manifest.world_size
    found = []
    if run.manifest.strategy is Strategy.DDP and ranks > 1:
        saves = states - states // ranks
        found.append((f"shard parameters, gradients and optimizer over the {ranks} ranks", saves, Worth.ESTIMATE))
    if run.manifest.strategy is Strategy.HSDP:
        sizes = numbers(run.table("units", rank=then.rank), "replicate_size")
        copies = int(sizes.max()) if len(sizes) else 1
        found.append((f"shard over the {copies} replicas too", states - states // max(copies, 1), Worth.ESTIMATE))
    found.append(("offload parameters, gradients and optimizer to the host", states, Worth.ESTIMATE))
    return found


def _of_gathers(run: Run, then: Peak) -> list[tuple[str, int, Worth]]:
    """Parameters of units that are gathered but not active, because they are not resharded after forward."""
    units = run.table("units", rank=then.rank)
    blocks = blocks_at(run, rank=then.rank, event=then.event)
    gathered = strings(blocks, "category") == Category.UNSHARDED_PARAM.value
    gathered &= strings(blocks, "basis") == Basis.TAG.value
    unit, size = numbers(blocks, "unit")[gathered], numbers(blocks, "size_bytes")[gathered]
    keeps = strings(units, "reshard_after_forward") == "no"
    inner = strings(units, "name") != ""
    kept = set(numbers(units, "unit")[keeps & inner].tolist()) - {then.unit}
    saves = int(size[np.isin(unit, list(kept))].sum()) if kept else 0
    return [("reshard_after_forward=True: units that are not active stay gathered", saves, Worth.MEASURED)]


def _of_device(found: PostMortem) -> list[tuple[str, int, Worth]]:
    device = found.device
    if device is None:
        return []
    listed = [
        (
            "TORCH_NCCL_AVOID_RECORD_STREAMS=1: freed, but a stream still holds it",
            device.pending_free_bytes or 0,
            Worth.MEASURED,
        ),
        ("other processes use this device: end them", device.other_processes_bytes or 0, Worth.MEASURED),
    ]
    unused, largest = device.reserved_unused_bytes, device.largest_free_bytes
    if unused is not None and largest is not None and unused > largest:
        action = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached, but in pieces or in other streams' pools"
        listed.append((action, unused - largest, Worth.ESTIMATE))
    return listed
