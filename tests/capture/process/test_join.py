"""Ranks that another launcher started join one run."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from capture.launch.launching import ENVIRONMENT, TINY, assert_whole, free_port
from recording import fsdp_profile, torchrun

from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.process.join import job_key, join_run
from fsdp_profile.core import layout
from fsdp_profile.core.errors import OutputError
from fsdp_profile.core.schema import Strategy
from fsdp_profile.ingest.manifest import read_manifest


def test_inside_torchrun_the_process_becomes_the_rank(tmp_path: Path) -> None:
    bare = torchrun("--nproc-per-node=2", TINY)
    command = ("--nproc-per-node=2", "-m", "fsdp_profile", "run", "--no-kineto", "-o", str(tmp_path / "run"), TINY)
    ours = torchrun(*command)
    assert (ours.returncode, ours.stdout) == (0, bare.stdout), ours.stderr
    assert layout.UNFINISHED in read_manifest(tmp_path / "run").extra
    run = load_run(tmp_path / "run")
    assert_whole(run, ranks=2, steps=3, strategy=Strategy.FSDP2)
    assert layout.UNFINISHED not in run.manifest.extra
    assert layout.UNFINISHED in read_manifest(tmp_path / "run").extra  # reading a run writes nothing
    assert fsdp_profile("show", str(tmp_path / "run")).returncode == 0
    finished = read_manifest(tmp_path / "run")  # the first command that opens it completes it
    assert replace(finished, receipt=run.manifest.receipt) == run.manifest
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


def test_the_key_of_a_job_is_what_its_ranks_share() -> None:
    nodes = {"TORCHELASTIC_RUN_ID": "a b", "MASTER_ADDR": "h0", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "2"}) == "a_b-h0-29500"
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}) == "h0-29500"
    # Several torchruns may follow each other inside one job of the scheduler.
    assert job_key({**nodes, "SLURM_JOB_ID": "9", "LOCAL_WORLD_SIZE": "2"}) == "a_b-h0-29500"
    assert job_key({"SLURM_JOB_ID": "9", "WORLD_SIZE": "4"}) == "slurm-9.0"
    assert job_key({**nodes, "LOCAL_WORLD_SIZE": "4"}).endswith(f"-{os.getppid()}")


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
