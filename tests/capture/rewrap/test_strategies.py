"""One unmodified script under every strategy: the losses agree, and what each rank keeps equals the closed forms.

P is the model's bytes. Sharded over S ranks: FSDP2 keeps ceil(rows / S) rows of every parameter, FSDP1 ceil(n / S)
elements of every unit's flat parameter; AdamW keeps two numbers for each element a rank really has, and a 4-byte
counter for each parameter of which it has a state. The vocabulary of 509 rows divides by no number of ranks.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from capture.rewrap.rewrapping import COUNTER, FLOAT, SCRIPT, STEPS, VOCAB, fsdp1, fsdp2, held, replicated, zero1
from recording import EXAMPLES, fsdp_profile

from fsdp_profile.analysis.compare.losses import agreement
from fsdp_profile.analysis.compare.replicated import replicated_estimate
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Strategy

ALL = ("as-is", "ddp", "zero1", "zero2", "fsdp", "hsdp:2")


Recorded = tuple[dict[str, Run], str]


def record(source: str, *strategies: str, ranks: int, into: Path, timeout_s: int = 240) -> Recorded:
    """The runs by strategy, and what was printed."""
    flags = [flag for strategy in strategies for flag in ("--as", strategy)]
    sizes = ["--vocab", str(VOCAB), "--steps", str(STEPS)]
    command = ["run", "-n", str(ranks), "-o", str(into), *flags, str(EXAMPLES / f"train_{source}.py"), *sizes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_profile", *command],
        capture_output=True, text=True, timeout=timeout_s, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {s: load_run(into / s.replace(":", "-")) for s in strategies}, done.stdout


def expected(source: str, strategy: str, units: list[list[torch.Size]], *, ranks: int, rank: int) -> tuple[int, ...]:
    if strategy == "as-is":
        strategy = "ddp" if source == "ddp" else "fsdp"
    if strategy == "ddp":
        return replicated(units)
    if strategy == "zero1":
        return zero1(units, ranks=ranks, rank=rank)
    shards = int(strategy.partition(":")[2] or ranks)
    return (fsdp1 if source == "fsdp1" else fsdp2)(units, shards=shards, rank=rank)


def check(source: str, recorded: Recorded, units: list[list[torch.Size]], *, ranks: int) -> None:
    runs, printed = recorded
    base = runs["ddp"]
    for strategy, run in runs.items():
        assert run.manifest.extra["as"] == strategy
        assert run.ranks == tuple(range(ranks))
        for rank in run.ranks:
            assert held(run, rank=rank) == expected(source, strategy, units, ranks=ranks, rank=rank), (strategy, rank)
            law = memory.conservation(run, rank=rank)
            assert (law.category_errors, law.reported_errors) == (0, 0)
        found = agreement(run, base)
        assert found is not None
        assert (found.is_equal, found.num_losses, len(found.steps)) == (True, STEPS * ranks, STEPS)
    assert "not equal" not in printed
    for strategy in runs:
        if strategy != "ddp":
            assert f"{strategy.replace(':', '-')}: losses are equal" in printed
    lines = printed.splitlines()
    assert any(line.startswith(f"Of {len(runs)} runs") or "% less" in line for line in lines)


def test_an_fsdp2_script_under_ddp_and_zero1(tmp_path: Path, units: list[list[torch.Size]]) -> None:
    recorded = record("fsdp2", "ddp", "zero1", ranks=2, into=tmp_path / "runs")
    check("fsdp2", recorded, units, ranks=2)
    assert [run.manifest.strategy for run in recorded[0].values()] == [Strategy.DDP, Strategy.DDP]


def test_a_ddp_script_under_fsdp_says_what_became_a_unit(tmp_path: Path, units: list[list[torch.Size]]) -> None:
    runs, _ = recorded = record("ddp", "ddp", "fsdp", ranks=2, into=tmp_path / "runs")
    check("ddp", recorded, units, ranks=2)
    assert runs["fsdp"].manifest.extra["rewrapped"] == [
        "DistributedDataParallel became FSDP2's fully_shard; units: 4 blocks (Block) and the root"
    ]
    names = runs["fsdp"].table("units", rank=0).column("name").to_pylist()
    assert names == ["layers.0", "layers.1", "layers.2", "layers.3", ""]
    # What the sharded run says about DDP, held against DDP itself: the optimizer's step counters are its only error.
    estimate, measured = replicated_estimate(runs["fsdp"]), memory.peak(runs["ddp"], rank=0)
    assert estimate is not None
    assert measured is not None
    assert estimate.peak_bytes == pytest.approx(measured.allocated_bytes, rel=0.001)
    assert replicated_estimate(runs["ddp"]) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", ["fsdp1", "fsdp2", "ddp"])
def test_six_strategies_from_one_script_on_four_ranks(
    tmp_path: Path, units: list[list[torch.Size]], source: str
) -> None:
    recorded = record(source, *ALL, ranks=4, into=tmp_path / "runs", timeout_s=1700)
    check(source, recorded, units, ranks=4)
    strategies = {name: run.manifest.strategy for name, run in recorded[0].items()}
    kind = Strategy.FSDP1 if source == "fsdp1" else Strategy.FSDP2
    own = Strategy.DDP if source == "ddp" else kind
    assert strategies == {
        "as-is": own, "ddp": Strategy.DDP, "zero1": Strategy.DDP,
        "zero2": kind, "fsdp": kind, "hsdp:2": Strategy.HSDP,
    }  # fmt: skip


def test_ddp_that_does_not_fit_is_a_result_with_an_estimate_in_its_place(tmp_path: Path) -> None:
    out, script = tmp_path / "runs", SCRIPT.with_name("oom.py")
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "--as", "ddp", "--as", "fsdp", "-o", str(out), str(script),
                        "whole", env={"COLUMNS": "200"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    estimate = replicated_estimate(load_run(out / "fsdp"))
    assert estimate is not None
    params = 2 * 64 * 64 * FLOAT
    held = estimate.by_category
    assert (held[Category.PARAM], held[Category.BUCKET]) == (params, params)
    assert held[Category.OPTIMIZER_STATE] == 2 * params + 2 * 2 * COUNTER  # a counter in each shard
    assert sum(held.values()) == estimate.peak_bytes
    told = " ".join(done.stdout.split())
    assert "ddp ran out of memory. ESTIMATE from fsdp: ddp would need " in told
    assert f"ddp would need {bytes_text(estimate.peak_bytes)} at its peak, fsdp needs " in told


@pytest.mark.slow
def test_a_checkpoint_runs_its_block_again_inside_ddps_backward(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "--as", "as-is", "--as", "ddp", "-o", str(out),
                        str(SCRIPT.with_name("variants.py")), "checkpoint")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = agreement(load_run(out / "as-is"), load_run(out / "ddp"))
    assert found is not None
    assert (found.is_equal, found.num_losses) == (True, 6)
