"""The same capture whoever starts the ranks: the script itself, another launcher, a scheduler, several nodes."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from recording import ROOT, SCRIPTS, fsdp_profile, torchrun

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.capture.launch.own_launcher import how_it_starts_ranks
from fsdp_profile.capture.process.join import job_key, join_run
from fsdp_profile.commands._launchers import is_command
from fsdp_profile.core import layout
from fsdp_profile.core.errors import OutputError
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.manifest import read_manifest

TINY, SPAWNED = str(SCRIPTS / "tiny_fsdp2.py"), str(SCRIPTS / "spawned.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
WEIGHT = 64 * 64 * 4


def python(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=240
    )


def assert_whole(run: Run, *, ranks: int, steps: int, strategy: Strategy) -> None:
    """Every rank is there, in every step, and adds up."""
    assert run.ranks == tuple(range(ranks))
    assert (run.manifest.world_size, run.manifest.strategy, run.manifest.warnings) == (ranks, strategy, [])
    assert run.manifest.complete
    for rank in run.ranks:
        assert run.manifest.ranks[rank].ending is Ending.COMPLETED
        law = ledger.conservation(run, rank=rank)
        assert (law.category_errors, law.reported_errors) == (0, 0)
        peaks = ledger.peak_of_steps(run, rank=rank)
        assert [peak.step for peak in peaks] == list(range(steps))
        assert all(peak.unknown_ratio <= 0.01 for peak in peaks)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- the script starts its ranks


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


@pytest.mark.slow
def test_a_number_of_ranks_means_ours_whatever_a_pod_s_environment_says(tmp_path: Path) -> None:
    pod = {**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "1"}
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), TINY, env=pod)
    assert done.returncode == 0, done.stderr
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.FSDP2)


def test_options_that_torchrun_cannot_start_with_are_one_line_and_no_run(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "1", "--rdzv-backend", "nope", "--rdzv-endpoint", "localhost:0",
                        "-o", str(tmp_path / "run"), TINY)  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("fsdp-profile: torchrun could not start: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_exit_code_is_the_script_s_also_when_nobody_reads_what_we_say(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nsys.exit(3)\n")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fsdp_profile", "run", "-n", "1", "-o", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, env=ENVIRONMENT, stderr=writer, timeout=120)
    os.close(writer)
    assert done.returncode == 3
    assert layout.is_run(tmp_path / "run")


# -- somebody else's launcher


def test_inside_torchrun_the_process_becomes_the_rank(tmp_path: Path) -> None:
    bare = torchrun("--nproc-per-node=2", TINY)
    command = ("--nproc-per-node=2", "-m", "fsdp_profile", "run", "--no-kineto", "-o", str(tmp_path / "run"), TINY)
    ours = torchrun(*command)
    assert (ours.returncode, ours.stdout) == (0, bare.stdout), ours.stderr
    assert layout.UNFINISHED in read_manifest(tmp_path / "run").extra
    run = load_run(tmp_path / "run")
    assert_whole(run, ranks=2, steps=3, strategy=Strategy.FSDP2)
    assert read_manifest(tmp_path / "run") == run.manifest  # the first reader finished it
    again = torchrun(*command)
    assert again.returncode != 0
    assert f"fsdp-profile: {tmp_path / 'run'}: holds another run; choose another folder with -o" in again.stderr


@pytest.mark.slow
def test_under_a_scheduler_its_job_names_the_run(tmp_path: Path) -> None:
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "fsdp_profile", "run", "--no-kineto", TINY],
            env={**ENVIRONMENT, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    ended = [(rank.communicate(timeout=240), rank.returncode) for rank in ranks]
    assert [code for _, code in ended] == [0, 0], ended
    assert_whole(
        load_run(tmp_path / "runs" / "tiny_fsdp2-2ranks-slurm-77.3"), ranks=2, steps=3, strategy=Strategy.FSDP2
    )


@pytest.mark.slow
def test_under_mpi_the_rank_is_known_by_other_names(tmp_path: Path) -> None:
    """As mpirun starts it; the script makes of the names what it likes."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, runpy, sys
        os.environ["RANK"], os.environ["WORLD_SIZE"] = (os.environ["OMPI_COMM_WORLD_" + n] for n in ("RANK", "SIZE"))
        runpy.run_path({TINY!r}, run_name="__main__")
        """)
    )
    shared = {"OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "fsdp_profile", "run", "--no-kineto", str(script)],
            env={**ENVIRONMENT, **shared, "OMPI_COMM_WORLD_RANK": str(rank), "PMIX_NAMESPACE": "12"},
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    ended = [(rank.communicate(timeout=240), rank.returncode) for rank in ranks]
    assert [code for _, code in ended] == [0, 0], ended
    assert_whole(load_run(tmp_path / "runs" / "train-2ranks-mpi-12"), ranks=2, steps=3, strategy=Strategy.FSDP2)


def test_a_variable_alone_records_any_launcher_s_ranks(tmp_path: Path) -> None:
    """The .pth file that the wheel installs, here in a folder of its own."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(ROOT / "profiler" / "fsdp_profile_autostart.pth", site)
    (site / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(site)!r})\n")
    told = {"PYTHONPATH": str(site), "FSDP_PROFILE": "1", "FSDP_PROFILE_OUTPUT": str(tmp_path / "run")}
    bare = python(SPAWNED)
    ours = python(SPAWNED, **told)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, bare.stdout, bare.stderr)
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.DDP)
    off = python("-c", "print(1)", PYTHONPATH=str(site), FSDP_PROFILE="yes")
    assert (off.stdout, off.stderr) == ("1\n", "fsdp-profile: FSDP_PROFILE must be 1 to record; nothing is recorded\n")


@pytest.mark.slow
def test_two_launchers_that_meet_are_two_nodes_of_one_run(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "fsdp_profile", "run", "-n", "1", "--no-kineto", "-o", str(tmp_path / "run"),
             "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "pair", "--rdzv-endpoint", endpoint, TINY],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    ended = [(node.communicate(timeout=240), node.returncode) for node in nodes]
    assert [code for _, code in ended] == [0, 0], ended
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.FSDP2)


def test_a_restart_is_a_run_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import os, torch, torch.distributed as dist
        from torch import nn
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and step == 1:
                raise RuntimeError("planted")
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
        """)
    )
    done = fsdp_profile("run", "-n", "1", "--max-restarts", "1", "-o", str(tmp_path / "run"), str(script))
    assert done.returncode == 0, done.stderr
    first = read_manifest(tmp_path / "run")
    assert (first.ranks[0].ending, first.ranks[0].num_steps) == (Ending.EXCEPTION, 1)
    assert first.warnings == ["the job was started again; each restart is a run of its own in this folder: restart_1"]
    assert_whole(load_run(tmp_path / "run" / "restart_1"), ranks=1, steps=3, strategy=Strategy.DDP)


def test_the_key_of_a_job_is_what_its_ranks_share() -> None:
    nodes = {"TORCHELASTIC_RUN_ID": "a b", "MASTER_ADDR": "h0", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "2"}) == "a_b-h0-29500"
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}) == "h0-29500"
    # Several torchruns may follow each other inside one job of the scheduler.
    assert job_key({**nodes, "SLURM_JOB_ID": "9", "LOCAL_WORLD_SIZE": "2"}) == "a_b-h0-29500"
    assert job_key({"SLURM_JOB_ID": "9", "WORLD_SIZE": "4"}) == "slurm-9.0"
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "4"}).endswith(f"-{os.getppid()}")


# -- the script says so itself


def test_a_script_records_itself_and_tells_its_steps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import fully_shard
        from fsdp_profile.capture import profile
        from fsdp_profile.core.errors import UsageError
        try:
            with profile():
                pass
        except UsageError as e:
            print(e)
        dist.init_process_group("gloo")
        with profile({str(tmp_path / "run")!r}, by_hand=True, kineto=False) as recording:
            model = fully_shard(nn.Linear(64, 64, bias=False))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                for _ in range(2):
                    model(torch.ones(4, 64)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                recording.step()
            try:
                with profile():
                    pass
            except UsageError as e:
                print(e)
        print(model(torch.ones(4, 64)).shape)
        dist.destroy_process_group()
        """)
    )
    done = torchrun("--nproc-per-node=1", str(script))
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "profile(): there is no process group; enter it after torch.distributed.init_process_group",
            "profile(): this process is already being recorded; a process has one recording",
            "torch.Size([4, 64])",
        ],
    ), done.stderr
    assert_whole(load_run(tmp_path / "run"), ranks=1, steps=3, strategy=Strategy.FSDP2)


def test_ranks_that_come_at_the_same_moment_join_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rank of the job puts its files there while this one looks whether the folder is somebody else's."""
    join = partial(join_run, tmp_path / "run", world_size=2, script="a.py", script_args=[], command=[], key="k")
    look = Path.iterdir

    def meanwhile(folder: Path) -> Iterator[Path]:
        monkeypatch.setattr(Path, "iterdir", look)
        layout.rank_dir(join(), 0).mkdir()
        return look(folder)

    monkeypatch.setattr(Path, "iterdir", meanwhile)
    assert join() == tmp_path / "run"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["manifest.json", "rank_00000"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(OutputError, match="exists and is not empty"):
        join_run(tmp_path / "other", world_size=2, script="a.py", script_args=[], command=[], key="k")
