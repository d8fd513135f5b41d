"""What a unit is, and what its columns say: whether it is sharded, whether it stays gathered, the job's strategy.

A new wrapper adds its UnitKind (core/schema.py), its row in KINDS here and its entry in capture/wrappers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fsdp_profile.core.schema import Strategy, UnitKind

Row = Mapping[str, Any]
"""A row of the `units` table."""

NO_SHARD: Final = "NO_SHARD"
_KEEPS_GATHERED: Final = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
"""FSDP1's sharding strategies that do not reshard after forward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitDescription:
    """What a wrapper says of a unit: a row of the `units` table but its number, and the unit's process group."""

    name: str
    kind: UnitKind
    numel: int
    num_params: int
    sharded_bytes: int
    unsharded_bytes: int
    dtype: str
    compute_dtype: str
    shard_size: int
    replicate_size: int
    reshard_after_forward: str = ""
    sharding: str = ""
    trainable_numel: int | None = None
    group: str = ""
    """Name of the process group, where collectives do not tell it (DDP's reducer calls from C++)."""
    group_description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What follows from the kind of a unit."""

    strategy: Strategy
    """Of a job with such units and without replicas of shards."""
    detail: Callable[[Sequence[Row]], str]
    """The strategy in the field's words, from the units."""
    is_bucket: bool = False
    """A bucket of gradients: not named after a module, and numbered anew whenever buckets are rebuilt."""


def is_bucket(kind: str) -> bool:
    """Whether units of a kind are buckets of gradients; of a kind that this release does not know: no."""
    return kind in _BUCKETS


def find_strategy(units: Sequence[Row], world_size: int) -> tuple[Strategy, str]:
    """The strategy of a job, and the same in the field's words.

    >>> find_strategy([], 2)
    (<Strategy.NONE: 'NONE'>, 'no FSDP or DDP module was seen')
    """
    if not units:
        return Strategy.NONE, "no FSDP or DDP module was seen"
    ranks = f"{world_size} rank{'s' if world_size != 1 else ''}"
    modules = [unit for unit in units if not is_bucket(unit["kind"])]
    found = modules or units
    first, kind = found[0], UnitKind(found[0]["kind"])
    shards, replicas = int(first["shard_size"]), int(first["replicate_size"])
    if modules and replicas > 1 and first["sharding"] != NO_SHARD:
        shards_text = f"{shards} shard{'s' if shards != 1 else ''}"
        return Strategy.HSDP, f"HSDP ({kind.label}), {replicas} replicas of {shards_text}, {ranks}"
    return KINDS[kind].strategy, f"{KINDS[kind].detail(found)}, {ranks}"


def is_unsharded(units: Sequence[Row]) -> bool:
    """Whether every unit was asked to stay whole on every rank (FSDP1's NO_SHARD)."""
    return bool(units) and all(unit["sharding"] == NO_SHARD for unit in units)


def keeps_gathered(units: Sequence[Row]) -> bool:
    """Whether the units, the root apart, stay gathered from forward to backward."""
    if any(unit["sharding"] for unit in units):
        return any(unit["sharding"] in _KEEPS_GATHERED for unit in units)
    return _reshards(units) == {"no"}


def _reshards(units: Sequence[Row]) -> set[str]:
    """The values of `reshard_after_forward` of all units but the root, which has a default of its own."""
    return {str(unit["reshard_after_forward"]) for unit in units if unit["name"]} or {"no"}


def _ddp(units: Sequence[Row]) -> str:
    return f"DDP, {len(units)} buckets"


def _fsdp1(units: Sequence[Row]) -> str:
    return f"FSDP1 {units[0]['sharding']}, {len(units)} units"


def _fsdp2(units: Sequence[Row]) -> str:
    found = _reshards(units)
    one = min(found)
    reshard = {"yes": "True", "no": "False"}.get(one, one) if len(found) == 1 else "mixed"
    return f"FSDP2 reshard_after_forward={reshard}, {len(units)} units"


KINDS: Final[dict[UnitKind, Kind]] = {
    UnitKind.FSDP1: Kind(strategy=Strategy.FSDP1, detail=_fsdp1),
    UnitKind.FSDP2: Kind(strategy=Strategy.FSDP2, detail=_fsdp2),
    UnitKind.DDP_BUCKET: Kind(strategy=Strategy.DDP, detail=_ddp, is_bucket=True),
}
_BUCKETS: Final = frozenset(kind.value for kind, facts in KINDS.items() if facts.is_bucket)
