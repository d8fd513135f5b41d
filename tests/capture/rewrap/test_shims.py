"""Calls of a script that have a clear meaning under another strategy are answered; the others are refused by name."""

from pathlib import Path

import pytest
import torch
from capture.rewrap.rewrapping import SCRIPT
from recording import fsdp_profile
from torch import nn

from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.rewrap.ddp import repeated_blocks
from fsdp_profile.capture.rewrap.zero1 import partition
from fsdp_profile.commands import main

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
