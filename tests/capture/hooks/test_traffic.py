"""Bytes of a step, on 2 and 4 ranks: what is recorded is what the strategy prescribes, to the byte.

P is the model's bytes; every parameter of these models divides by 4 on dim 0, so no padding. A unit whose parameters
are sharded over s ranks in r replicas gathers P (s-1)/s on the wire for each gather, reduce-scatters P (s-1)/s and
all-reduces its shard, 2 P/s (r-1)/r; DDP all-reduces 2 P (N-1)/N. FSDP gathers twice, so it moves 1.5 times as much,
less the units that stay gathered from forward to backward: the root always, all of them without resharding.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from recording import NUM_STEPS, SCRIPTS, fsdp_profile

from fsdp_profile.analysis.collectives.traffic import StepTraffic, step_traffic, traffic
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.analysis.units.in_flight import InFlight, gathers, in_flight
from fsdp_profile.core.schema import SpanKind

Recorded = Callable[[str], Run]

P = 928_000 * 4
ROOT = 139_520 * 4

RANKS = {
    "ddp": 2, "ddp_4": 4, "fsdp1": 2, "fsdp1_4": 4, "fsdp2": 2, "fsdp2_4": 4, "fsdp2_no_reshard": 2,
    "fsdp2_no_reshard_4": 4,
}  # fmt: skip
GATHERED = {"fsdp1": 2 * P - ROOT, "fsdp2": 2 * P - ROOT, "fsdp2_no_reshard": P}


def ring(size: int, ranks: int) -> int:
    """S (N-1)/N, exact here."""
    found = Fraction(size * (ranks - 1), ranks)
    assert found.denominator == 1
    return int(found)


def rows_of(run: Run, *, rank: int, step: int) -> list[tuple[str, int, int, int]]:
    """(kind, group_size, size_bytes, wire_bytes) of one step; DDP's broadcast of its rebuilt buckets apart."""
    rows = traffic(run, rank=rank).to_pylist()
    return [
        (row["kind"], row["group_size"], row["size_bytes"], row["wire_bytes"])
        for row in rows
        if row["step"] == step and row["kind"] != "BROADCAST"
    ]


@pytest.mark.parametrize("name", RANKS)
def test_every_step_moves_the_bytes_of_the_closed_form(recorded: Recorded, name: str) -> None:
    run, ranks = recorded(name), RANKS[name]
    gathered = GATHERED.get(name.removesuffix("_4"))
    expected = (
        [("ALL_REDUCE", ranks, P, 2 * ring(P, ranks))]
        if gathered is None
        else [("ALL_GATHER", ranks, gathered, ring(gathered, ranks)), ("REDUCE_SCATTER", ranks, P, ring(P, ranks))]
    )
    assert run.ranks == tuple(range(ranks))
    for rank in run.ranks:
        for step in range(NUM_STEPS):
            assert rows_of(run, rank=rank, step=step) == expected


@pytest.mark.parametrize(("name", "twice"), [("fsdp1_4", 2), ("fsdp2_4", 2), ("fsdp2_no_reshard_4", 1)])
def test_counts_on_four_ranks_are_those_the_strategy_prescribes(recorded: Recorded, name: str, twice: int) -> None:
    """Blocks gather and reshard twice in a step, once where they stay gathered; the root once; each reduces once."""
    run = recorded(name)
    for rank in run.ranks:
        spans = run.table("unit_spans", rank=rank).select(["unit", "kind", "step"]).to_pylist()
        counts = Counter((span["unit"], span["kind"], span["step"]) for span in spans)
        for step in range(NUM_STEPS):
            for unit in range(5):
                gathers = 1 if unit == 4 else twice
                found = [counts[unit, str(kind), step] for kind in (SpanKind.ALL_GATHER, SpanKind.RESHARD)]
                assert found == [gathers, gathers]
                assert counts[unit, "REDUCE_SCATTER", step] == 1


@pytest.mark.parametrize(("name", "shards", "replicas"), [("hsdp", 2, 2), ("hsdp_2", 1, 2)])
def test_hsdp_gathers_in_its_shard_group_and_reduces_the_shard_over_the_replicas(
    recorded: Recorded, name: str, shards: int, replicas: int
) -> None:
    run = recorded(name)
    gathered = 2 * P - ROOT
    sharded = [
        ("ALL_GATHER", shards, gathered, ring(gathered, shards)),
        ("REDUCE_SCATTER", shards, P, ring(P, shards)),
    ]
    reduced = ("ALL_REDUCE", replicas, P // shards, 2 * ring(P // shards, replicas))
    for rank in run.ranks:
        for step in range(NUM_STEPS):
            # A group of one rank makes no collective at all.
            expected = sorted([*sharded, reduced]) if shards > 1 else [reduced]
            assert rows_of(run, rank=rank, step=step) == expected
        groups = {
            row["group_description"] for row in run.table("collectives", rank=rank).to_pylist() if row["step"] >= 0
        }
        # A dimension of the mesh that holds all ranks is the default group.
        assert groups == ({"mesh_shard", "mesh_replicate"} if shards > 1 else {"default_pg"})
    assert str(run.manifest.strategy) == "HSDP"


def test_the_groups_of_ddp_are_named_though_its_reducer_calls_from_outside_of_python(recorded: Recorded) -> None:
    rows = recorded("ddp").table("collectives", rank=0).to_pylist()
    reduced = [row for row in rows if row["step"] == 1 and row["kind"] == "ALL_REDUCE"]
    assert {(row["group_description"], row["dtype"]) for row in reduced} == {("default_pg", "float32")}


@pytest.mark.parametrize("suffix", ["", "_4"])
def test_the_ratio_to_ddp_is_one_without_resharding(recorded: Recorded, suffix: str) -> None:
    ddp = step_traffic(recorded(f"ddp{suffix}"), rank=0)
    kept = step_traffic(recorded(f"fsdp2_no_reshard{suffix}"), rank=0)
    assert ddp is not None and kept is not None
    assert Fraction(kept.wire_bytes, ddp.wire_bytes) == 1


WIDTH = 64
BLOCK = 8 * WIDTH * WIDTH
HEAD = WIDTH * WIDTH
NUMEL = 2 * BLOCK + HEAD


def record(mode: str, path: Path, *, ranks: int = 2) -> Run:
    done = fsdp_profile(
        "run", "-n", str(ranks), "--no-kineto", "-o", str(path / mode), str(SCRIPTS / "variants.py"), mode
    )
    assert done.returncode == 0, done.stderr
    run = load_run(path / mode)
    assert run.manifest.warnings == []
    return run


def test_fsdp_moves_one_and_a_half_times_what_ddp_moves_once_every_parameter_is_resharded(tmp_path: Path) -> None:
    """The root has no parameters of its own here, so everything is gathered twice."""
    ddp = step_traffic(record("ddp", tmp_path), rank=0)
    fsdp = step_traffic(record("all-wrapped", tmp_path), rank=0)
    assert ddp is not None and (ddp.size_bytes, ddp.wire_bytes) == (4 * NUMEL, 4 * NUMEL)
    assert ddp.num_unknown == 2  # the broadcasts of its rebuilt buckets, from C++
    assert fsdp == StepTraffic(size_bytes=12 * NUMEL, wire_bytes=6 * NUMEL, num_steps=3)


@pytest.mark.parametrize("mode", ["bf16", "fsdp1-bf16"])
def test_bytes_follow_the_dtype_of_each_collective(tmp_path: Path, mode: str) -> None:
    """bf16 gathers, fp32 reductions: 2 bytes a gathered element, 4 a reduced one."""
    run = record(mode, tmp_path)
    gathered = 2 * (2 * (2 * BLOCK) + HEAD)
    for step in range(3):
        assert rows_of(run, rank=0, step=step) == [
            ("ALL_GATHER", 2, gathered, gathered // 2),
            ("REDUCE_SCATTER", 2, 4 * NUMEL, 2 * NUMEL),
        ]
    table = run.table("collectives", rank=0).to_pylist()
    assert {(row["kind"], row["dtype"]) for row in table if row["step"] >= 0} == {
        ("ALL_GATHER", "bfloat16"),
        ("REDUCE_SCATTER", "float32"),
    }


def test_reshard_to_a_smaller_mesh_gathers_in_backward_from_that_mesh_alone(tmp_path: Path) -> None:
    """reshard_after_forward=2 of 4 ranks: forward gathers over 4, backward over 2; the root is gathered once."""
    run = record("reshard-int", tmp_path, ranks=4)
    size, blocks = 4 * NUMEL, 4 * 2 * BLOCK
    for rank in run.ranks:
        for step in range(3):
            assert rows_of(run, rank=rank, step=step) == [
                ("ALL_GATHER", 2, blocks, ring(blocks, 2)),
                ("ALL_GATHER", 4, size, ring(size, 4)),
                ("REDUCE_SCATTER", 4, size, ring(size, 4)),
            ]


def marks(run: Run, *, step: int) -> list[tuple[str, str, str]]:
    rows = gathers(run, rank=0).select(["name", "step", "phase", "prefetch"]).to_pylist()
    return [(row["name"], row["phase"], row["prefetch"]) for row in rows if row["step"] == step]


def test_implicit_prefetch_is_the_default_of_backward(recorded: Recorded) -> None:
    forward = [("", "FORWARD", ""), *((f"layers.{i}", "FORWARD", "") for i in range(4))]
    backward = [(f"layers.{i}", "BACKWARD", "IMPLICIT") for i in (3, 2, 1, 0)]  # the root's backward issues the first
    for name in ("fsdp1", "fsdp2"):
        assert marks(recorded(name), step=1) == [*forward, *backward]


@pytest.mark.slow
def test_explicit_prefetch_is_what_the_script_asked_for(tmp_path: Path) -> None:
    assert marks(record("prefetch", tmp_path), step=1) == [
        ("", "FORWARD", ""),
        ("blocks.0", "FORWARD", ""),
        ("blocks.1", "FORWARD", "EXPLICIT"),
        ("blocks.1", "BACKWARD", "IMPLICIT"),  # by the root, for which the script named nothing
        ("blocks.0", "BACKWARD", "EXPLICIT"),
    ]
    assert marks(record("fsdp1-prefetch", tmp_path), step=1) == [
        ("", "FORWARD", ""),
        ("blocks.0", "FORWARD", "EXPLICIT"),
        ("blocks.1", "FORWARD", "EXPLICIT"),
        ("blocks.1", "BACKWARD", "IMPLICIT"),
        ("blocks.0", "BACKWARD", "IMPLICIT"),
    ]


def test_depth_of_the_prefetch_and_its_bytes(recorded: Recorded) -> None:
    """Forward: root and one block. Backward: root, the active block and the next one, gathered ahead."""
    block = 197_120 * 4
    forward, backward = in_flight(recorded("fsdp2"), rank=0)
    assert forward == InFlight(
        phase="FORWARD", step=0, max_gathered=2, gathered_bytes=ROOT + block, units=("", "layers.0"), max_ahead=0,
        ahead_bytes=0, held_bytes=forward.held_bytes,
    )  # fmt: skip
    assert backward == InFlight(
        phase="BACKWARD", step=0, max_gathered=3, gathered_bytes=ROOT + 2 * block,
        units=("", "layers.3", "layers.2"), max_ahead=1, ahead_bytes=block, held_bytes=backward.held_bytes,
    )  # fmt: skip
    assert backward.held_bytes is not None and backward.held_bytes >= backward.gathered_bytes
