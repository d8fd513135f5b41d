"""One unmodified script under every strategy: the losses agree, and what each rank keeps equals the closed forms.

P is the model's bytes. Sharded over S ranks: FSDP2 keeps ceil(rows / S) rows of every parameter, FSDP1 ceil(n / S)
elements of every unit's flat parameter; AdamW keeps two numbers for each element a rank really has, and a 4-byte
counter for each parameter of which it has a state. The vocabulary of 509 rows divides by no number of ranks.
"""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recording import EXAMPLES, fsdp_profile
from torch import nn

from fsdp_profile.analysis.compare.losses import agreement
from fsdp_profile.analysis.compare.replicated import replicated_estimate
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.capture.rewrap.ddp import repeated_blocks
from fsdp_profile.capture.rewrap.zero1 import partition
from fsdp_profile.commands import main
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Strategy

FLOAT = COUNTER = 4
VOCAB, STEPS = 509, 3
ALL = ("as-is", "ddp", "zero1", "zero2", "fsdp", "hsdp:2")
STATES = (Category.PARAM, Category.GRAD, Category.OPTIMIZER_STATE)

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


@pytest.fixture(scope="module")
def units() -> list[list[torch.Size]]:
    """The shapes of every unit's parameters, the root's last."""
    sys.path.insert(0, str(EXAMPLES))
    import gpt

    parser = argparse.ArgumentParser()
    gpt.add_model_arguments(parser)
    preset = gpt.chosen_preset(parser.parse_args(["--vocab", str(VOCAB)]))
    with torch.device("meta"):
        model = gpt.GPT(preset.config)
    blocks = [[p.shape for p in block.parameters()] for block in model.layers]
    return [*blocks, [p.shape for name, p in model.named_parameters() if not name.startswith("layers.")]]


def replicated(units: list[list[torch.Size]]) -> tuple[int, int, int]:
    """Parameters, gradients and AdamW's states of DDP, in bytes."""
    shapes = [shape for unit in units for shape in unit]
    param_bytes = FLOAT * sum(shape.numel() for shape in shapes)
    return param_bytes, param_bytes, 2 * param_bytes + COUNTER * len(shapes)


def zero1(units: list[list[torch.Size]], *, ranks: int, rank: int) -> tuple[int, int, int]:
    """ZeRO-1: the largest parameter first, each to the rank with the fewest elements so far."""
    in_order = [shape for unit in (*units[-1:], *units[:-1]) for shape in unit]  # ties break by the model's own order
    embeddings, rest = in_order[:2], in_order[2 : len(units[-1])]
    model_order = [*embeddings, *in_order[len(units[-1]) :], *rest]
    load, mine = [0] * ranks, []
    for shape in sorted(model_order, key=lambda s: s.numel(), reverse=True):
        owner = load.index(min(load))
        load[owner] += shape.numel()
        mine += [shape.numel()] if owner == rank else []
    param_bytes, grad_bytes, _ = replicated(units)
    return param_bytes, grad_bytes, 2 * FLOAT * sum(mine) + COUNTER * len(mine)


def fsdp2(units: list[list[torch.Size]], *, shards: int, rank: int) -> tuple[int, int, int]:
    """FSDP2: rows of dim 0, padded to the same number on every rank; states have no padding."""
    padded = real = counters = 0
    for rows, *rest in (shape for unit in units for shape in unit):
        chunk, width = math.ceil(rows / shards), math.prod(rest)
        padded += chunk * width
        real += min(max(rows - chunk * (rank % shards), 0), chunk) * width
        counters += 1
    return FLOAT * padded, FLOAT * padded, 2 * FLOAT * real + COUNTER * counters


def fsdp1(units: list[list[torch.Size]], *, shards: int, rank: int) -> tuple[int, int, int]:
    """FSDP1: equal parts of each unit's flat parameter; a parameter of which a rank has nothing has no state."""
    padded = real = counters = 0
    for shapes in units:
        chunk = math.ceil(sum(shape.numel() for shape in shapes) / shards)
        begin, end, at = chunk * (rank % shards), chunk * (rank % shards + 1), 0
        for shape in shapes:
            held = max(min(at + shape.numel(), end) - max(at, begin), 0)
            at, real, counters = at + shape.numel(), real + held, counters + (held > 0)
        padded += chunk
    return FLOAT * padded, FLOAT * padded, 2 * FLOAT * real + COUNTER * counters


def expected(source: str, strategy: str, units: list[list[torch.Size]], *, ranks: int, rank: int) -> tuple[int, ...]:
    if strategy == "as-is":
        strategy = "ddp" if source == "ddp" else "fsdp"
    if strategy == "ddp":
        return replicated(units)
    if strategy == "zero1":
        return zero1(units, ranks=ranks, rank=rank)
    shards = int(strategy.partition(":")[2] or ranks)
    return (fsdp1 if source == "fsdp1" else fsdp2)(units, shards=shards, rank=rank)


def held(run: Run, *, rank: int) -> tuple[int, ...]:
    """The most of each state in step 1, when the optimizer's are there from the beginning."""
    ledger = memory.timeline(run, rank=rank, step=1)
    return tuple(int(ledger.by_category[category].max()) for category in STATES)


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
    assert "NOT equal" not in printed
    for strategy in runs:
        if strategy != "ddp":
            assert f"- {strategy.replace(':', '-')}: equal" in printed
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


SCRIPT = Path(__file__).parents[1] / "scripts" / "rewrapped.py"
TRAINED = [
    "step 0 loss 0.07795 norm 0.80184",
    "step 1 loss 0.08161 norm 0.88581",
    "step 2 loss 0.07053 norm 0.99462",
]
"""With accumulation, no_sync and clipping: the same for every wrapper."""


@pytest.mark.parametrize(
    ("strategy", "kind", "call", "refusal"),
    [
        pytest.param(
            "ddp",
            "fsdp1",
            "sharded",
            "FullyShardedDataParallel.state_dict_type(SHARDED_STATE_DICT): there are",
            marks=pytest.mark.slow,
        ),
        ("ddp", "fsdp2", "placements", "Tensor.placements: parameters are whole here, not DTensors"),
        pytest.param(
            "fsdp",
            "ddp",
            "comm-hook",
            "DistributedDataParallel.register_comm_hook: it is written for DDP's buckets",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_has_a_clear_meaning_is_answered_and_what_has_none_is_refused_by_name(
    tmp_path: Path, strategy: str, kind: str, call: str, refusal: str
) -> None:
    out = tmp_path / "run"
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "--as", strategy, "-o", str(out), str(SCRIPT), kind,
                        "--call", call)  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == TRAINED
    assert f"fsdp-profile run --as {strategy}: {refusal}" in load_run(out).manifest.ranks[0].message


@pytest.mark.parametrize(
    ("call", "note"),
    [
        ("early", "AdamW was built before wrapping: it was given the sharded parameters"),
        pytest.param("zero", "ZeroRedundancyOptimizer became AdamW", marks=pytest.mark.slow),
    ],
)
def test_optimizers_of_a_ddp_script_are_given_the_shards(tmp_path: Path, call: str, note: str) -> None:
    out = tmp_path / "run"
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "--as", "fsdp", "-o", str(out), str(SCRIPT), "ddp",
                        "--call", call)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == TRAINED
    assert note in load_run(out).manifest.extra["rewrapped"]
    assert f"fsdp-profile: {note}" in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("zero3", "--as zero3: no such strategy; give one of ddp, zero1, zero2, fsdp, hsdp:K"),
        ("hsdp", "--as hsdp: give the ranks of a shard group, 2 or more, such as hsdp:2"),
        ("hsdp:2", "--as hsdp:2: 2 ranks are not two or more groups of 2; choose another K, or --as fsdp"),
    ],
)
def test_a_strategy_that_cannot_be_is_one_line_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, error: str
) -> None:
    assert main(["run", "-n", "2", "--as", text, "-o", str(tmp_path / "run"), str(SCRIPT), "ddp"]) == 2
    assert capsys.readouterr().err.startswith(f"fsdp-profile: {error}")
    assert not (tmp_path / "run").exists()


def test_a_strategy_is_asked_for_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--as", "ddp", "--as", "DDP"]
    assert main(["run", "-n", "2", *asked, "-o", str(tmp_path / "run"), str(SCRIPT), "ddp"]) == 2
    assert capsys.readouterr().err == "fsdp-profile: --as ddp is given twice; once is enough\n"


def test_blocks_are_the_outermost_repeated_parts() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    model = nn.ModuleDict({"embed": nn.Embedding(4, 2), "blocks": nn.ModuleList([Block(), Block()])})
    assert repeated_blocks(model) == list(model["blocks"])
    tied = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2))
    tied[2].weight = tied[0].weight
    assert repeated_blocks(tied) == [tied[3]]
    assert repeated_blocks(nn.Linear(2, 2)) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as it imports its own optimizers
def test_zero1_parts_are_those_of_torchs_own_optimizer() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    sizes = [[7, 50, 3, 20], [20, 1, 20]]
    groups = [[nn.Parameter(torch.zeros(size)) for size in group] for group in sizes]

    class Stand(ZeroRedundancyOptimizer):
        """Only what the partition reads."""

        def __init__(self) -> None:
            self.world_size, self._partition_parameters_cache = 3, []
            self.param_groups = [{"params": list(group)} for group in groups]

    theirs = {
        id(param): rank
        for rank, found in enumerate(Stand()._partition_parameters())
        for group in found
        for param in group["params"]
    }
    assert partition(groups, 3) == theirs


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
