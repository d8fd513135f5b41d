"""Which strategy a job used, from the units its ranks described."""

from typing import Any

from fsdp_profile.core.schema import Strategy, UnitKind


def find_strategy(units: list[dict[str, Any]], world_size: int) -> tuple[Strategy, str]:
    """The strategy, and the same in the field's words.

    >>> find_strategy([], 2)
    (<Strategy.NONE: 'NONE'>, 'no FSDP or DDP module was seen')
    """
    ranks = f"{world_size} rank{'s' if world_size != 1 else ''}"
    sharded = [u for u in units if u["kind"] != UnitKind.DDP_BUCKET.value]
    if not units:
        return Strategy.NONE, "no FSDP or DDP module was seen"
    if not sharded:
        return Strategy.DDP, f"DDP, {len(units)} buckets, {ranks}"
    first = sharded[0]
    shard, replicas = int(first["shard_size"]), int(first["replicate_size"])
    api = str(first["kind"])
    if replicas > 1 and (shard > 1 or api == UnitKind.FSDP2.value):
        return Strategy.HSDP, f"HSDP ({api}), {replicas} replicas of {shard} shard{'s' if shard != 1 else ''}, {ranks}"
    if api == UnitKind.FSDP1.value:
        return Strategy.FSDP1, f"FSDP1 {first['sharding']}, {len(sharded)} units, {ranks}"
    blocks = {str(u["reshard_after_forward"]) for u in sharded if u["name"]} or {"no"}
    reshard = {"yes": "True", "no": "False"}.get(min(blocks), min(blocks)) if len(blocks) == 1 else "mixed"
    return Strategy.FSDP2, f"FSDP2 reshard_after_forward={reshard}, {len(sharded)} units, {ranks}"
