"""Scripts that start their ranks themselves, and launchers as the command."""

import textwrap
from pathlib import Path

import pytest
from capture.launch.launching import ENVIRONMENT, SPAWNED, TINY, assert_whole, free_port, python
from recording import fsdp_profile, torchrun

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.launch.own_launcher import how_it_starts_ranks
from fsdp_profile.commands._launchers import is_command
from fsdp_profile.core.schema import Ending, Strategy

WEIGHT = 64 * 64 * 4


@pytest.mark.parametrize("start", ["spawn", pytest.param("fork", marks=pytest.mark.slow)])
def test_children_of_torch_multiprocessing_are_ranks(tmp_path: Path, start: str) -> None:
    bare = python(SPAWNED, "--start", start)
    ours = fsdp_profile("run", "--no-kineto", "-o", str(tmp_path / "run"), SPAWNED, "--start", start)
    assert (ours.returncode, ours.stdout) == (0, bare.stdout)
    assert [line for line in ours.stderr.splitlines() if not line.startswith("fsdp-profile: ")] == []
    run = load_run(tmp_path / "run")
    assert_whole(run, ranks=2, steps=3, strategy=Strategy.DDP)
    kept = {str(c): size for c, size in ledger.peak_of_steps(run, rank=0)[2].by_category.items()}
    assert {name: kept[name] for name in ("PARAM", "GRAD", "OPTIMIZER_STATE", "BUCKET")} == {
        "PARAM": WEIGHT, "GRAD": WEIGHT, "OPTIMIZER_STATE": WEIGHT, "BUCKET": WEIGHT,
    }  # fmt: skip


def test_an_exception_in_a_spawned_rank_ends_it_as_without_us(tmp_path: Path) -> None:
    def traceback(text: str) -> list[str]:
        return text[text.index("Traceback (most recent call last)") :].split("\nfsdp-profile:")[0].strip().splitlines()

    bare = python(SPAWNED, "--end", "raise")
    ours = fsdp_profile("run", "--no-kineto", "-o", str(tmp_path / "run"), SPAWNED, "--end", "raise")
    assert (bare.returncode, ours.returncode) == (1, 1)
    assert traceback(ours.stderr) == traceback(bare.stderr)
    assert (
        "fsdp-profile: the script ended with exit code 1, rank 1 failed first (RuntimeError: planted); "
        "what was recorded is kept" in ours.stderr
    )
    run = load_run(tmp_path / "run")
    assert (run.manifest.ranks[1].ending, run.manifest.ranks[1].message) == (
        Ending.EXCEPTION,
        "RuntimeError: planted",
    )
    assert not run.manifest.complete


@pytest.mark.slow
@pytest.mark.parametrize("by_variable", [False, True])
def test_every_further_job_of_a_script_is_a_run_of_its_own(tmp_path: Path, by_variable: bool) -> None:
    """A job of one rank between two of two: rank 1 of the last finds its folder free in neither of the others."""
    options = ("--start", "fork", "--ranks", "2", "1", "2")
    if by_variable:
        done = python(SPAWNED, *options, FSDP_PROFILE="1", FSDP_PROFILE_OUTPUT=str(tmp_path / "run"))
    else:
        done = fsdp_profile("run", "--no-kineto", "-o", str(tmp_path / "run"), SPAWNED, *options)
    assert done.returncode == 0, done.stderr
    first = load_run(tmp_path / "run").manifest
    assert first.warnings == [
        "the script started several jobs; each further one is a run of its own in this folder: job_1, job_2"
    ]
    assert (first.world_size, first.complete, len(first.ranks)) == (2, True, 2)
    assert_whole(load_run(tmp_path / "run" / "job_1"), ranks=1, steps=3, strategy=Strategy.DDP)
    assert_whole(load_run(tmp_path / "run" / "job_2"), ranks=2, steps=3, strategy=Strategy.DDP)


def test_a_launcher_as_the_command_is_run_once_and_its_ranks_recorded(tmp_path: Path) -> None:
    bare = torchrun("--nproc-per-node=2", TINY)
    command = ("run", "--no-kineto", "-o", str(tmp_path / "run"), "torchrun", "--standalone", "--nproc-per-node=2")
    ours = fsdp_profile(*command, TINY, env=ENVIRONMENT)
    assert (ours.returncode, ours.stdout) == (0, bare.stdout)
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.FSDP2)


@pytest.mark.slow
def test_an_option_says_that_the_script_starts_its_ranks(tmp_path: Path) -> None:
    script = tmp_path / "hidden.py"
    script.write_text(
        f"import runpy\nif __name__ == '__main__':\n    runpy.run_path({SPAWNED!r}, run_name='__main__')\n"
    )
    done = fsdp_profile("run", "--own-launcher", "-o", str(tmp_path / "run"), str(script), "--start", "fork")
    assert done.returncode == 0, done.stderr
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.DDP)


def test_a_script_whose_processes_join_no_group_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("import os\nprint(sorted(v for v in os.environ if v == 'RANK'))\n")
    done = fsdp_profile("run", "--own-launcher", "-o", str(tmp_path / "run"), str(script))
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "warning: nothing distributed was seen: no process joined a process group" in done.stderr


def test_a_model_made_before_the_group_is_in_the_ledger_and_a_closure_is_a_backward(tmp_path: Path) -> None:
    """As Lightning's Trainer does it. The array is numpy's, and the first model is gone before the first forward."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import numpy, torch, torch.distributed as dist
        from torch import nn
        gone, model = nn.Linear(512, 512), nn.Linear(64, 64, bias=False)
        foreign, data = torch.from_numpy(numpy.ones(4096)), torch.ones(8, 64)
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
        del gone
        model = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        def closure():
            optimizer.zero_grad()
            loss = model(data).pow(2).mean()
            loss.backward()
            return loss
        for _ in range(3):
            optimizer.step(closure)
        """)
    )
    done = fsdp_profile("run", "--own-launcher", "--no-kineto", "-o", str(tmp_path / "run"), str(script))
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert_whole(run, ranks=1, steps=3, strategy=Strategy.DDP)
    kept = {str(c): size for c, size in ledger.peak_of_steps(run, rank=0)[2].by_category.items() if size > 100}
    activations = kept.pop("ACTIVATION", 0) + kept.pop("OPTIMIZER_TEMPORARY", 0) + kept.pop("TEMPORARY", 0)
    assert activations <= 3 * 8 * 64 * 4
    assert kept == {
        "PARAM": WEIGHT, "GRAD": WEIGHT, "OPTIMIZER_STATE": WEIGHT, "BUCKET": WEIGHT,
        "INPUT": 8 * 64 * 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=2)", "mp.spawn"),
        ("from torch import multiprocessing\nmultiprocessing.start_processes(f)", "mp.start_processes"),
        ("from torch.multiprocessing import Process\nProcess(target=f).start()", "mp.Process"),
        ("import torch\ntorch.multiprocessing.spawn(f)", "mp.spawn"),
        ("import subprocess\nsubprocess.run(['torchrun', 'train.py'])", "torchrun"),
        ("import os\nos.system('python -m torch.distributed.run train.py')", "torch.distributed.run"),
        ("from accelerate import notebook_launcher\nnotebook_launcher(f)", "notebook_launcher"),
        ("'''torchrun train.py'''\nimport torch", None),
        ("from lightning.fabric import Fabric\nFabric(devices=2).launch()", "Lightning's Fabric"),
        ("import lightning as L\nL.pytorch.Trainer(devices=2).fit(model)", "Lightning's Trainer"),
        ("import pytorch_lightning as pl\npl.Trainer(devices=2)", "Lightning's Trainer"),
        ("from transformers import Trainer\nimport lightning\nTrainer()", None),
        ("import multiprocessing as mp\nmp.Process(target=f)", None),  # data, most likely: torch has its own
        ("import torch.multiprocessing as mp\nmp.set_start_method('spawn')", None),
        ("not python", None),
    ],
)
def test_what_starts_ranks_is_read_from_the_source(tmp_path: Path, source: str, found: str | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert how_it_starts_ranks(script) == found


def test_what_is_run_once_is_a_command_and_no_python_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name, first in (("go.sh", "#!/bin/bash"), ("torchrun", "#!/usr/bin/python3"), ("bin/there", "#!/bin/sh"),
                        ("train.py", "#!/usr/bin/env python3"), ("train", "#!/usr/bin/env python3")):  # fmt: skip
        (tmp_path / name).write_text(f"{first}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "notes.txt").write_text("#!/bin/bash\n")
    words = ("go.sh", str(tmp_path / "torchrun"), "there", "train.py", "train", "notes.txt", "absent")
    assert [is_command(word) for word in words] == [True, True, True, False, False, False, False]
