"""A run's layout, units and sizes, for the planner."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import STATES
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy
from fsdp_profile.core.units import is_unsharded, keeps_gathered
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.ingest.units import is_module
from fsdp_profile.plan.formulas.strategies import Layout, World

_BLOCK: Final = re.compile(r"^(.*?\.\d+)\.")
"""`layers.3` of `layers.3.mlp.weight`: what is made a unit where a run has none."""
_ITEM_BYTES: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """A model as a run recorded it. Bytes are those of unsharded parameters in compute dtype."""

    layout: Layout
    shards: int
    is_sharded: bool
    unsharded_bytes: int
    unit_bytes: int
    """Bytes of the largest unit but the root."""
    root_bytes: int
    """Bytes of the parameters in no block."""
    num_units: int
    """Units without the root."""
    trained_bytes: int
    """All gradients, in the dtype they are kept in."""
    grad_itemsize: int


def layout_of(run: Run) -> Layout:
    """The layout that a run was recorded with."""
    strategy = run.manifest.strategy
    if strategy is Strategy.HSDP:
        return Layout.HSDP
    units = run.table("units", rank=run.ranks[0])
    modules = units.filter(pa.array(is_module(units))).to_pylist()
    if strategy not in (Strategy.FSDP1, Strategy.FSDP2) or is_unsharded(modules):
        return Layout.DDP
    return Layout.FSDP_NO_RESHARD if modules and keeps_gathered(modules) else Layout.FSDP


def world_of(run: Run) -> World:
    """The ranks of a run, and its replicas under HSDP."""
    units = run.table("units", rank=run.ranks[0])
    replicas = numbers(units, "replicate_size")[is_module(units)]
    return World(size=max(run.manifest.world_size, 1), replicas=int(replicas.max()) if len(replicas) else 1)


def sizes_of(run: Run, *, rank: int) -> Sizes:
    """The units of a sharded run; of DDP the blocks that the parameters' names show."""
    units = run.table("units", rank=rank)
    modules = units.filter(pa.array(is_module(units))).to_pylist()
    if modules:
        by_unit = {row["name"]: row["unsharded_bytes"] for row in modules}
        shards = max(row["shard_size"] for row in modules)
        dtype = modules[0]["dtype"]
    else:
        by_unit, shards = _blocks(run, rank), 1
        dtype = next(iter(run.manifest.model.dtypes), "float32")
    root = sum(size for name, size in by_unit.items() if not name)
    blocks = [size for name, size in by_unit.items() if name]
    states = most_of_states(run, rank=rank)
    return Sizes(
        layout=layout_of(run),
        shards=shards,
        is_sharded=shards > 1,
        unsharded_bytes=sum(by_unit.values()),
        unit_bytes=max(blocks, default=root),
        root_bytes=root,
        num_units=len(blocks),
        trained_bytes=states[Category.GRAD] * shards,
        grad_itemsize=_ITEM_BYTES.get(dtype, 4),
    )


def most_of_states(run: Run, *, rank: int) -> dict[Category, int]:
    """The most bytes that each kept category held at any event of a training step."""
    steps = numbers(run.table("memory_samples", rank=rank), "step")
    most = dict.fromkeys(STATES, 0)
    for piece in ledger.pieces(run, rank=rank):
        trained = steps[piece.event] >= 0
        for category, held in most.items():
            most[category] = max(held, int(piece.by_category[category][trained].max(initial=0)))
    return most


def _blocks(run: Run, rank: int) -> dict[str, int]:
    """Bytes by block; '' for what is in none. Each parameter counts once."""
    found: dict[str, int] = defaultdict(int)
    blocks = run.table("allocations", rank=rank)
    is_param = strings(blocks, "category").astype(str) == Category.PARAM.value
    names = strings(blocks, "name").astype(str)[is_param]
    for name, size in dict(zip(names, numbers(blocks, "size_bytes")[is_param].tolist(), strict=True)).items():
        block = _BLOCK.match(name)
        found[block[1] if block else ""] += size
    return dict(found)
