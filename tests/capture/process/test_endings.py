"""Endings from outside: signals to the launcher, a rank that hangs. What was flushed is kept, nothing is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.schema import Ending

TINY = str(SCRIPTS / "tiny_fsdp2.py")
WINDOW = list(range(8))


def assert_nobody_is_left(run: Run) -> None:
    assert not any(is_running(record.pid) for record in run.manifest.ranks)


def is_running(pid: int) -> bool:
    """A rank whose parent ended before it stays a zombie where nobody inherits orphans (a container)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def interrupted(run_dir: Path, *script: str, number: int, whole_group: bool = False) -> Run:
    """What is left of a run that got a signal when its window was over; what it says, checked."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "fsdp_profile", "run", "--no-kineto", "-o", str(run_dir), *script, "--steps", "1000000"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=whole_group,
    )  # fmt: skip
    assert launcher.stdout is not None
    for line in launcher.stdout:
        if line.startswith("step 9 "):  # the window is over and written
            break
    if whole_group:
        os.killpg(launcher.pid, number)
    else:
        launcher.send_signal(number)
    _, stderr = launcher.communicate(timeout=120)
    assert launcher.returncode == 128 + number
    assert f"fsdp-profile: interrupted by signal {int(number)}; what was recorded is kept" in stderr
    run = load_run(run_dir)
    assert not run.manifest.complete
    assert_nobody_is_left(run)
    for rank in run.ranks:
        assert [peak.step for peak in ledger.peak_of_steps(run, rank=rank)] == WINDOW
    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_the_ranks_and_keeps_what_they_wrote(tmp_path: Path, number: int) -> None:
    run = interrupted(tmp_path / "run", "-n", "2", TINY, number=number)
    for rank in run.ranks:
        assert ledger.conservation(run, rank=rank).category_errors == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_a_script_that_started_its_ranks(tmp_path: Path, number: int) -> None:
    # SIGINT as a terminal sends it; sent to it alone a bare mp.spawn waits for its ranks for ever.
    is_terminal = number == signal.SIGINT
    interrupted(tmp_path / "run", str(SCRIPTS / "spawned.py"), number=number, whole_group=is_terminal)


@pytest.mark.slow
def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    """A limit of the file size stands for it: the write fails in the same way, with another word."""
    command = [sys.executable, "-m", "fsdp_profile", "run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), TINY,
               "--steps", "8"]  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 40 && exec "$@"', "bash", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0
    assert "step 7 loss" in done.stdout
    assert "fsdp-profile: everything from here on not recorded: cannot write" in done.stderr
    run = load_run(tmp_path / "run")
    assert not run.manifest.complete
    for rank in run.ranks:
        assert f"rank {rank}: its log has no end (os._exit, os.exec or a full disk)" in "\n".join(run.manifest.warnings)
        assert ledger.conservation(run, rank=rank).category_errors == 0
    assert 0 in [peak.step for peak in ledger.peak_of_steps(run, rank=0)]


def test_a_rank_that_hangs_is_ended_by_the_process_group_s_own_timeout(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), TINY, "--end", "hang")
    assert done.returncode == 1
    run = load_run(tmp_path / "run")
    assert_nobody_is_left(run)
    waited, slept = run.manifest.ranks
    assert waited.ending is Ending.EXCEPTION
    assert "Timed out waiting" in waited.message
    assert slept.ending in (Ending.SIGNAL, Ending.UNKNOWN)  # the agent ends it
    for rank in run.ranks:
        assert [peak.step for peak in ledger.peak_of_steps(run, rank=rank)][:2] == [0, 1]


@pytest.mark.slow
def test_another_run_beside_it_is_not_disturbed_and_no_file_of_ours_is_left(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "fsdp_profile", "run", "-n", "2", "--no-kineto", "-o", str(tmp_path / name), TINY],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    ended = [(job.communicate(timeout=240), job.returncode) for job in jobs]
    assert [code for _, code in ended] == [0, 0], ended
    assert ended[0][0][0] == ended[1][0][0]  # the same losses
    for name in ("one", "two"):
        run = load_run(tmp_path / name)
        assert run.manifest.complete
        assert_nobody_is_left(run)
    # torchrun's agent makes a folder for its ranks' logs and torch one for its compiler, with us or without.
    assert {path.name.partition("_")[0] for path in scratch.iterdir()} <= {"torchelastic", "torchinductor"}
