"""Write a made-up run of any number of allocator events: what the dashboard and the verbs are measured on.

Nothing was recorded: a transformer of 32 layers under FSDP2 is played through, block by block. Every block is
allocated at one event and freed at another, so that the ledger adds up to the byte, as a recorded one does. Steps
differ in the length of their batch, and the first one makes the optimizer's states.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from fsdp_profile.core import layout
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.manifest import Manifest, Model, RankRecord
from fsdp_profile.core.schema import (
    NO_UNIT,
    NOT_FREED,
    SETUP_STEP,
    Basis,
    CollectiveKind,
    Ending,
    Phase,
    SpanKind,
    Strategy,
    UnitKind,
)
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.ingest.memory_pyramid import MIN_EVENTS, pyramid_columns
from fsdp_profile.ingest.tables import make_table

Ints = np.ndarray[Any, np.dtype[np.int64]]

LAYERS: Final = 32
SHARDS: Final = 8
UNIT_BYTES: Final = 404 << 20
ROOT_BYTES: Final = 500 << 20
ACTIVATION_BYTES: Final = 144 << 20  # of a layer, kept for backward, at a batch of middling length
ROUNDING_BYTES: Final = 512
RESERVED_STEP_BYTES: Final = 20 << 20
OUTSIDE_BYTES: Final = 1 << 30  # in use on the device, not by the allocator
MEAN_GAP_NS: Final = 8_000
SAMPLE_NS: Final = 100_000_000
T0_NS: Final = 1_790_000_000_000_000_000
_OPERATORS: Final = (
    "",
    "aten::empty",
    "aten::mm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::add",
    "aten::cat",
)
_PHASES: Final = [phase.value for phase in Phase]
_SPANS: Final = [kind.value for kind in SpanKind]
_CALLS: Final = [kind.value for kind in CollectiveKind]


@dataclass(kw_only=True)
class Script:
    """The events of one step, or of the set-up: blocks by the event that begins and the one that ends them."""

    num_events: int = 0
    blocks: list[list[int]] = field(default_factory=list)
    """start, end (-1: lives on), size, category, unit, phase, operator, whether its size goes with the batch."""
    spans: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """unit, kind, first event, last event, size."""
    calls: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """kind, unit, first event, last event, size."""
    phases: list[tuple[int, int]] = field(default_factory=list)
    """phase, its first event."""

    def begin(self, phase: Phase) -> None:
        """What follows belongs to this phase."""
        self.phases.append((_PHASES.index(phase.value), self.num_events))

    def alloc(
        self, category: Category, size: int, unit: int = NO_UNIT, *, operator: int = 1, grows: bool = False
    ) -> int:
        """A block; returns its number."""
        row = [self.num_events, -1, size, CATEGORIES.index(category), unit, self.phases[-1][0], operator, int(grows)]
        self.blocks.append(row)
        self.num_events += 1
        return len(self.blocks) - 1

    def free(self, block: int) -> None:
        """The end of a block."""
        self.blocks[block][1] = self.num_events
        self.num_events += 1

    def span(self, unit: int, kind: SpanKind, start: int, size: int = 0) -> None:
        """From an event to now."""
        self.spans.append((unit, _SPANS.index(kind.value), start, self.num_events - 1, size))

    def call(self, kind: CollectiveKind, unit: int, start: int, size: int) -> None:
        """A collective from an event to now."""
        self.calls.append((_CALLS.index(kind.value), unit, start, self.num_events - 1, size))

    def work(
        self, count: int, unit: int, sizes: "np.random.Generator", category: Category = Category.TEMPORARY
    ) -> None:
        """Workspaces, each freed after the next one came."""
        before = -1
        for size, operator in zip(
            sizes.integers(1, 96, count).tolist(), sizes.integers(2, 6, count).tolist(), strict=True
        ):
            block = self.alloc(category, size << 18, unit, operator=operator, grows=True)
            if before >= 0:
                self.free(before)
            before = block
        if before >= 0:
            self.free(before)


def unit_bytes(unit: int) -> int:
    """The gathered parameters of a unit; unit 0 is the root."""
    return UNIT_BYTES if unit else ROOT_BYTES


def setup_script() -> Script:
    """Every unit is made whole and sharded."""
    script = Script()
    script.begin(Phase.SETUP)
    for unit in range(LAYERS + 1):
        whole = script.alloc(Category.UNSHARDED_PARAM, unit_bytes(unit), unit)
        script.alloc(Category.PARAM, unit_bytes(unit) // SHARDS, unit)
        script.free(whole)
    return script


def step_script(num_temporaries: int, *, makes_states: bool) -> Script:
    """One step, with this many workspaces in each layer's forward and in its backward."""
    script, rng = Script(), np.random.default_rng(7)
    script.begin(Phase.FORWARD)
    batch = script.alloc(Category.INPUT, 4 << 20, grows=True)
    kept: list[int] = []
    root = _gather(script, 0)
    for unit in range(1, LAYERS + 1):
        start = script.num_events
        gathered = _gather(script, unit)
        kept.append(script.alloc(Category.ACTIVATION, ACTIVATION_BYTES, unit, operator=2, grows=True))
        script.work(num_temporaries, unit, rng)
        script.span(unit, SpanKind.FORWARD, start)
        _reshard(script, unit, gathered)
    logits = script.alloc(Category.ACTIVATION, 3 * ACTIVATION_BYTES, 0, operator=2, grows=True)
    script.begin(Phase.BACKWARD)
    grads: list[int] = []
    for unit in range(LAYERS, 0, -1):
        start = script.num_events
        gathered = _gather(script, unit)
        script.work(num_temporaries, unit, rng)
        whole = script.alloc(Category.UNSHARDED_GRAD, unit_bytes(unit), unit)
        script.free(kept[unit - 1])
        script.span(unit, SpanKind.BACKWARD, start)
        grads.append(_reduce(script, unit, whole))
        _reshard(script, unit, gathered)
    whole = script.alloc(Category.UNSHARDED_GRAD, unit_bytes(0), 0)
    script.free(logits)
    grads.append(_reduce(script, 0, whole))
    _reshard(script, 0, root)
    script.begin(Phase.OPTIMIZER)
    for unit in range(LAYERS + 1):
        if makes_states:
            for _ in range(2):
                script.alloc(Category.OPTIMIZER_STATE, unit_bytes(unit) // SHARDS * 2, unit)
        script.free(script.alloc(Category.OPTIMIZER_TEMPORARY, unit_bytes(unit) // SHARDS, unit, operator=4))
    script.begin(Phase.OTHER)
    for block in (*grads, batch):
        script.free(block)
    return script


def _gather(script: Script, unit: int) -> tuple[int, int]:
    start = script.num_events
    buffer = script.alloc(Category.ALL_GATHER, unit_bytes(unit), unit)
    block = script.alloc(Category.UNSHARDED_PARAM, unit_bytes(unit), unit)
    script.free(buffer)
    script.span(unit, SpanKind.ALL_GATHER, start, unit_bytes(unit))
    script.call(CollectiveKind.ALL_GATHER, unit, start, unit_bytes(unit))
    return block, start


def _reshard(script: Script, unit: int, gathered: tuple[int, int]) -> None:
    block, start = gathered
    script.free(block)
    script.span(unit, SpanKind.RESHARD, script.num_events - 1, unit_bytes(unit))
    script.span(unit, SpanKind.UNSHARDED, start, unit_bytes(unit))


def _reduce(script: Script, unit: int, whole: int) -> int:
    """The unit's gradients reduced: the shard that is kept."""
    start = script.num_events
    buffer = script.alloc(Category.REDUCE_SCATTER, unit_bytes(unit), unit)
    script.free(whole)
    shard = script.alloc(Category.GRAD, unit_bytes(unit) // SHARDS, unit)
    script.free(buffer)
    script.span(unit, SpanKind.REDUCE_SCATTER, start, unit_bytes(unit))
    script.call(CollectiveKind.REDUCE_SCATTER, unit, start, unit_bytes(unit))
    return shard


@dataclass(frozen=True, kw_only=True)
class Played:
    """All scripts one after the other: (script, its number of repetitions, step of the first, first event)."""

    parts: tuple[tuple[Script, int, int, int], ...]
    num_events: int
    num_steps: int

    def first_events(self, number: int) -> Ints:
        """Of each repetition of a part."""
        script, count, _, first = self.parts[number]
        return first + script.num_events * np.arange(count, dtype=np.int64)


def play(num_events: int, num_steps: int) -> Played:
    """At least `num_events` events in `num_steps` steps."""
    bare = step_script(0, makes_states=False).num_events
    per_layer = max(num_events // num_steps - bare, 0) // (4 * LAYERS) + 1
    setup, first, later = setup_script(), *(step_script(per_layer, makes_states=made) for made in (True, False))
    begin = setup.num_events
    parts = (
        (setup, 1, SETUP_STEP, 0),
        (first, 1, 0, begin),
        (later, num_steps - 1, 1, begin + first.num_events),
    )
    total = begin + first.num_events + later.num_events * (num_steps - 1)
    return Played(parts=parts, num_events=total, num_steps=num_steps)


def tables(played: Played) -> dict[str, dict[str, Any]]:
    """Columns of every table, by its name."""
    rng = np.random.default_rng(3)
    # The batch of a step is 0.8 to 1.1 of the middling one.
    batch = np.round(rng.uniform(0.8, 1.1, played.num_steps), 3)
    gaps = rng.exponential(MEAN_GAP_NS, played.num_events).astype(np.int64) + 1
    t_ns = T0_NS + np.cumsum(gaps)
    blocks = _allocations(played, batch, t_ns)
    delta = np.zeros(played.num_events, np.int64)
    delta[blocks["start_event"]] = blocks["size_bytes"]
    freed = blocks["end_event"] != NOT_FREED
    delta[blocks["end_event"][freed]] = -blocks["size_bytes"][freed]
    return {
        "allocations": blocks,
        "memory_samples": _samples(played, t_ns, delta),
        **_spans(played, t_ns),
        "units": _units(),
        "device_samples": _device(t_ns, delta),
    }


def _allocations(played: Played, batch: "np.ndarray[Any, np.dtype[np.float64]]", t_ns: Ints) -> dict[str, Any]:
    found: dict[str, list[Any]] = {name: [] for name in ("start", "end", "size", "step", "fixed")}
    for number, (script, count, step, _) in enumerate(played.parts):
        rows = np.array(script.blocks, np.int64)
        offset = played.first_events(number)[:, None]
        found["start"].append((rows[:, 0] + offset).ravel())
        found["end"].append(np.where(rows[:, 1] < 0, NOT_FREED, rows[:, 1] + offset).ravel())
        steps = np.arange(step, step + count)
        scale = np.where(rows[:, 7] == 1, batch[np.maximum(steps, 0)][:, None], 1.0)
        found["size"].append((rows[:, 2] * scale).astype(np.int64).ravel() // ROUNDING_BYTES * ROUNDING_BYTES)
        found["step"].append(np.repeat(steps, len(rows)))
        found["fixed"].append(np.tile(rows[:, 3:7], (count, 1)))
    start, end, size, step_of = (np.concatenate(found[name]) for name in ("start", "end", "size", "step"))
    fixed = np.concatenate(found["fixed"])
    num_blocks = len(start)
    none = (np.zeros(num_blocks, np.int32), [""])
    return {
        "allocation": np.arange(num_blocks),
        "address": (np.arange(num_blocks, dtype=np.uint64) % 4096 + 1) << np.uint64(21),
        "size_bytes": size,
        "start_ns": t_ns[start],
        "end_ns": np.where(end == NOT_FREED, NOT_FREED, t_ns[np.minimum(end, len(t_ns) - 1)]),
        "start_event": start,
        "end_event": end,
        "category": (fixed[:, 0], [category.value for category in CATEGORIES]),
        "basis": (np.zeros(num_blocks, np.int32), [Basis.TAG.value]),
        "unit": fixed[:, 1],
        "name": none,
        "operator": (fixed[:, 3], list(_OPERATORS)),
        "step": step_of,
        "phase": (fixed[:, 2], _PHASES),
        "stream": np.zeros(num_blocks, np.int64),
        "free_unreported": np.zeros(num_blocks, np.bool_),
    }


def _samples(played: Played, t_ns: Ints, delta: Ints) -> dict[str, Any]:
    step, phase = np.empty(len(t_ns), np.int32), np.empty(len(t_ns), np.int32)
    for script, count, first_step, first in played.parts:
        bounds = [event for _, event in script.phases] + [script.num_events]
        of_one = np.repeat([which for which, _ in script.phases], np.diff(bounds))
        stop = first + script.num_events * count
        phase[first:stop] = np.tile(of_one, count)
        step[first:stop] = np.repeat(np.arange(first_step, first_step + count), script.num_events)
    allocated = np.cumsum(delta)
    return {
        "t_ns": t_ns,
        "step": step,
        "phase": (phase, _PHASES),
        "delta_bytes": delta,
        "allocated_bytes": allocated,
        "reported_bytes": allocated,
        "unreported_free_bytes": np.zeros(len(t_ns), np.int64),
        "reserved_bytes": _reserved(allocated),
        "active_bytes": allocated,
    }


def _reserved(allocated: Ints) -> Ints:
    found: Ints = -(-np.maximum.accumulate(allocated) // RESERVED_STEP_BYTES) * RESERVED_STEP_BYTES
    return found


def _spans(played: Played, t_ns: Ints) -> dict[str, dict[str, Any]]:
    """Steps, phases, spans of units and collectives; compute fills what is between the collectives."""
    steps: list[tuple[int, int, int]] = []
    phases: list[tuple[int, int, int, int]] = []
    units: list[Any] = []
    calls: list[Any] = []
    for number, (script, count, first_step, _) in enumerate(played.parts):
        spans, called = np.array(script.spans, np.int64), np.array(script.calls, np.int64)
        bounds = [event for _, event in script.phases] + [script.num_events]
        for step, first in zip(
            range(first_step, first_step + count), played.first_events(number).tolist(), strict=True
        ):
            at = t_ns[first + np.minimum(bounds, script.num_events - 1)]
            steps.append((step, int(at[0]), int(at[-1])))
            phases += [(step, which, int(at[i]), int(at[i + 1])) for i, (which, _) in enumerate(script.phases)]
            if len(spans):
                units.append(np.column_stack([spans, np.full(len(spans), step)]) + first * np.array([0, 0, 1, 1, 0, 0]))
                calls.append(
                    np.column_stack([called, np.full(len(called), step)]) + first * np.array([0, 0, 1, 1, 0, 0])
                )
    found, joined = np.concatenate(units), np.concatenate(calls)
    phase_starts = np.array([start for _, _, start, _ in phases])
    phase_of = np.array([which for _, which, _, _ in phases])

    def phase_at(t: Ints) -> tuple[Any, list[str]]:
        return phase_of[np.searchsorted(phase_starts, t, side="right") - 1], _PHASES

    start, begin = t_ns[found[:, 2]], t_ns[joined[:, 2]]
    no_text = (np.zeros(len(joined), np.int32), [""])
    return {
        "steps": {
            "step": [step for step, _, _ in steps],
            "start_ns": [start for _, start, _ in steps],
            "end_ns": [end for _, _, end in steps],
            "complete": [step >= 0 for step, _, _ in steps],
            "recorded": [True] * len(steps),
        },
        "phases": {
            "step": [step for step, *_ in phases],
            "phase": (phase_of, _PHASES),
            "start_ns": phase_starts,
            "end_ns": [end for *_, end in phases],
        },
        "unit_spans": {
            "unit": found[:, 0],
            "kind": (found[:, 1], _SPANS),
            "step": found[:, 5],
            "phase": phase_at(start),
            "start_ns": start,
            "end_ns": t_ns[found[:, 3]] + 1,
            "size_bytes": found[:, 4],
            "prefetched": np.zeros(len(found), np.bool_),
        },
        "collectives": {
            "kind": (joined[:, 0], _CALLS),
            "start_ns": begin,
            "end_ns": t_ns[joined[:, 3]],
            "issue_ns": begin,
            "step": joined[:, 5],
            "phase": phase_at(begin),
            "unit": joined[:, 1],
            "size_bytes": joined[:, 4],
            "group_size": np.full(len(joined), SHARDS),
            "transport": no_text,
        },
        "kernels": {
            "name": (np.zeros(len(joined) - 1, np.int32), ["gemm"]),
            "start_ns": t_ns[joined[:-1, 3]] - MEAN_GAP_NS,
            "end_ns": begin[1:],
            "stream": np.full(len(joined) - 1, 7),
            "step": joined[:-1, 5],
        },
    }


def _units() -> dict[str, Any]:
    names = ["", *(f"layers.{layer}" for layer in range(LAYERS))]
    whole = np.array([unit_bytes(unit) for unit in range(len(names))])
    return {
        "unit": np.arange(len(names)),
        "name": names,
        "kind": [UnitKind.FSDP2.value] * len(names),
        "numel": whole // 2,
        "num_params": [9] * len(names),
        "sharded_bytes": whole // SHARDS,
        "unsharded_bytes": whole,
        "dtype": ["bfloat16"] * len(names),
        "compute_dtype": ["bfloat16"] * len(names),
        "shard_size": [SHARDS] * len(names),
        "replicate_size": [1] * len(names),
        "reshard_after_forward": ["yes"] * len(names),
        "sharding": [""] * len(names),
    }


def _device(t_ns: Ints, delta: Ints) -> dict[str, Any]:
    at = np.arange(t_ns[0], t_ns[-1], SAMPLE_NS)
    reserved = _reserved(np.cumsum(delta))[np.searchsorted(t_ns, at, side="right") - 1]
    return {
        "t_ns": at,
        "device_used_bytes": reserved + OUTSIDE_BYTES,
        "process_used_bytes": reserved + OUTSIDE_BYTES // 2,
        "device_total_bytes": np.full(len(at), 80 << 30),
    }


def write_run(path: Path, *, num_events: int, num_steps: int) -> int:
    """Write the run of one rank; returns the number of its events."""
    played = play(num_events, num_steps)
    folder = layout.rank_dir(path, 0)
    folder.mkdir(parents=True)
    made = {name: make_table(name, columns) for name, columns in tables(played).items()}
    if played.num_events >= MIN_EVENTS:
        made["memory_pyramid"] = make_table(
            "memory_pyramid", pyramid_columns(made["memory_samples"], made["allocations"])
        )
    for name, table in made.items():
        # Level 1: a run that is measured is written often and kept nowhere.
        pq.write_table(table, layout.table_path(path, 0, name), compression="zstd", compression_level=1)
    total = sum(unit_bytes(unit) for unit in range(LAYERS + 1))
    model = Model(
        name="made up",
        numel=total // 2,
        num_params=9 * (LAYERS + 1),
        param_bytes=total,
        dtypes={"bfloat16": total // 2},
    )
    manifest = Manifest(
        name=path.name,
        created="2026-01-02T03:04:05+00:00",
        strategy=Strategy.FSDP2,
        strategy_detail="made up by benchmarks/make_big_run.py",
        world_size=1,
        device_type="cuda",
        device_name="none: made up",
        device_total_bytes=80 << 30,
        model=model,
        ranks=[RankRecord(rank=0, ending=Ending.COMPLETED, exit_code=0, num_steps=num_steps)],
        complete=True,
    )
    write_manifest(path, manifest)
    return played.num_events


def main() -> None:
    """Make one and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    begin = time.process_time()
    num_events = write_run(args.path, num_events=args.events, num_steps=args.steps)
    size = sum(path.stat().st_size for path in args.path.rglob("*.parquet"))
    print(f"{args.path}: {num_events:,} events, {size / 1e6:.0f} MB, {time.process_time() - begin:.1f} s of CPU")


if __name__ == "__main__":
    main()
