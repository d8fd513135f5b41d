"""`fsdp-profile run` as a user meets it: nothing of the script changes, and every ending leaves what was recorded."""

import json
import re
import signal
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from recording import SCRIPTS, fsdp_profile, torchrun

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.writer import RawWriter
from fsdp_profile.core.schema import Ending
from fsdp_profile.ingest.manifest import read_manifest

TINY = str(SCRIPTS / "tiny_fsdp2.py")
ONE_LINE = re.compile(r"^fsdp-profile: [^\n]+\n$")


def traceback_of(stderr: str) -> list[str]:
    """The lines of Python's report, without torchrun's and ours."""
    return [line for line in stderr.splitlines() if line.startswith("[rank1]:")]


@pytest.mark.parametrize("end", [pytest.param("raise", marks=pytest.mark.slow), "raise-in-forward"])
def test_losses_output_and_traceback_are_the_scripts_own(tmp_path: Path, end: str) -> None:
    bare = torchrun("--nproc-per-node=2", TINY, "--end", end)
    ours = fsdp_profile("run", "-n", "2", "-o", str(tmp_path / "run"), TINY, "--end", end)
    assert bare.returncode == 1
    assert ours.returncode == 1
    assert "step 1 loss" in ours.stdout
    assert ours.stdout == bare.stdout
    assert traceback_of(ours.stderr) == traceback_of(bare.stderr) != []


def test_output_is_identical_when_all_goes_well(tmp_path: Path) -> None:
    bare = torchrun("--nproc-per-node=2", TINY)
    ours = fsdp_profile("run", "-n", "2", "-o", str(tmp_path / "run"), TINY)
    assert (ours.returncode, ours.stdout) == (0, bare.stdout)
    foreign = [line for line in ours.stderr.splitlines() if not line.startswith("fsdp-profile: ")]
    assert foreign == []
    kept = [path.parent.name for path in sorted((tmp_path / "run").rglob("summary.json"))]
    assert kept == ["rank_00000", "rank_00001"]  # whoever looks at many runs or ranks reads these


def test_failure_of_one_rank_keeps_what_was_recorded(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "2", "-o", str(tmp_path / "run"), TINY, "--end", "raise", "--steps", "9")
    assert done.returncode == 1
    assert "rank 1 ended with exit code 1 (RuntimeError: planned failure); what was recorded is kept" in done.stderr
    run = load_run(tmp_path / "run")
    assert not run.manifest.complete
    record = run.manifest.ranks[1]
    assert (record.ending, record.message) == (Ending.EXCEPTION, "RuntimeError: planned failure")
    for rank in (0, 1):
        assert ledger.conservation(run, rank=rank).category_errors == 0
        assert [p.step for p in ledger.peak_of_steps(run, rank=rank)][:2] == [0, 1]


@pytest.mark.parametrize(
    ("end", "code", "ending"),
    [
        ("exit", 7, Ending.EXITED),
        ("os-exit", 5, Ending.EXITED),
        ("kill", 128 + signal.SIGKILL, Ending.SIGNAL),
    ],
)
def test_exit_codes_are_the_scripts_own(tmp_path: Path, end: str, code: int, ending: Ending) -> None:
    done = fsdp_profile("run", "-n", "2", "-o", str(tmp_path / "run"), TINY, "--end", end)
    assert done.returncode == code
    run = load_run(tmp_path / "run")
    assert run.manifest.ranks[1].ending is ending
    # Two whole steps were flushed before the end, whatever it was.
    assert [p.step for p in ledger.peak_of_steps(run, rank=1)] == [0, 1]
    assert ledger.conservation(run, rank=1).category_errors == 0
    assert all(not Path(f"/proc/{record.pid}").exists() for record in run.manifest.ranks)
    assert (run.manifest.device_type, run.manifest.versions["torch"]) == ("cpu", version("torch"))
    assert run.manifest.receipt.hook_events > 0
    no_end = "rank 1: its log has no end (os._exit, os.exec or a full disk); what it wrote up to step 2 is kept"
    killed = "rank 1: its process was killed; what it wrote up to step 2 is kept"
    assert {line for line in run.manifest.warnings if line.startswith("rank 1: its ")} == {
        "exit": set(), "os-exit": {no_end}, "kill": {killed}
    }[end]  # fmt: skip
    if end == "kill":  # the other rank wrote its last window: it waits for what rank 1 never joined
        assert not any("rank 0: its process was killed" in line for line in run.manifest.warnings)
        [lost] = cross_rank(run).never_joined
        assert (lost.rank, lost.step, lost.num_more) == (1, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "-n", "2", "nowhere/train.py"], "nowhere/train.py: no such file; give the training script's path"),
        (["run", "-n", "0", TINY], "--nproc-per-node 0: not a number of ranks; give 1 or more, gpu or cpu"),
        (["run", "-n", "-3", TINY], "--nproc-per-node -3: not a number of ranks; give 1 or more, gpu or cpu"),
        (["run", "-n", "two", TINY], "--nproc-per-node two: not a number of ranks; give 1 or more, gpu or cpu"),
        (["run", "--steps", "5:2", TINY], "--steps 5:2: give A:B with A less than B, such as 0:8"),
        (["run", "--nnodes", "x", TINY], "--nnodes x: give a number of nodes, or MIN:MAX"),
        (["show", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = fsdp_profile(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert ONE_LINE.match(done.stderr), done.stderr
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    done = fsdp_profile("run", "-n", "1", "-o", str(tmp_path), TINY)
    assert (done.returncode, done.stdout) == (2, "")
    assert ONE_LINE.match(done.stderr)
    assert "exists and is not empty; choose another folder with -o, or remove it" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = fsdp_profile("run", "-n", "1", "-o", str(blocker / "run"), TINY)
    assert done.returncode == 2
    assert ONE_LINE.match(done.stderr)
    assert "cannot write here" in done.stderr


def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    """A limit on the size of a file stands in for the disk: the log of a step does not fit any more."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = fsdp_profile(
        "run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), TINY, "--steps", "9", preexec_fn=limit
    )
    assert done.returncode == 0
    assert "step 8 loss" in done.stdout
    assert "everything from here on not recorded: cannot write" in done.stderr
    run = load_run(tmp_path / "run")
    assert not run.manifest.complete
    assert any("cut short" in w or "cannot write" in w for w in run.manifest.warnings)
    assert [p.step for p in ledger.peak_of_steps(run, rank=0)][:1] == [0]


def test_a_full_device_is_an_error_of_the_writer_only(tmp_path: Path) -> None:
    writer = RawWriter(tmp_path, 0)
    writer.write("rank", {"rank": 0})
    writer._file.close()
    with Path("/dev/full").open("w") as full:
        writer._file = full
        writer.write("chunk", {"values": list(range(10_000))})
        assert writer.error is not None
        assert "No space left on device" in writer.error
        writer.close()


def test_the_window_ends_the_recording_while_the_script_goes_on(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "2", "--steps", "1:3", "-o", str(tmp_path / "run"), TINY, "--steps", "6")
    assert done.returncode == 0
    assert "step 5 loss" in done.stdout
    run = load_run(tmp_path / "run")
    assert run.manifest.complete
    assert [p.step for p in ledger.peak_of_steps(run, rank=0)] == [0, 1, 2]
    traces = sorted(p.name for p in (tmp_path / "run" / "rank_00000" / "raw").glob("kineto*.json"))
    assert traces == ["kineto_00001.json", "kineto_00002.json"]
    events = json.loads((tmp_path / "run" / "rank_00000" / "raw" / traces[0]).read_text())["traceEvents"]
    assert any(e.get("name", "").startswith("FSDP::all_gather") for e in events)
    assert run.manifest.receipt.bare_step_ns is None  # one recorded step past the warm-up is too few


def test_the_receipt_holds_a_recorded_step_against_the_steps_after_the_window(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "2", "--steps", "0:5", "-o", str(tmp_path / "run"), TINY, "--steps", "10")
    assert done.returncode == 0
    receipt = load_run(tmp_path / "run").manifest.receipt
    # Steps 2 to 4 are measured, and of the 5 after the window what lies between their 5 ends; on two ranks.
    assert receipt.num_bare_steps == 2 * 4
    ends = [np.diff(load_run(tmp_path / "run").table("steps", rank=rank)["end_ns"].to_numpy()[1:6]) for rank in (0, 1)]
    assert receipt.recorded_step_ns == round(np.median([times[1:] for times in ends]))
    assert receipt.bare_step_ns is not None
    assert f"a recorded step took {receipt.recorded_step_ns / receipt.bare_step_ns:.2f} times" in done.stderr


def test_a_script_that_trains_nothing_distributed_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\nprint(torch.ones(2).sum().item())\n")
    done = fsdp_profile("run", "-n", "1", "-o", str(tmp_path / "run"), str(script))
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert "nothing distributed was seen" in done.stderr
    assert read_manifest(tmp_path / "run").sources["units"].startswith("not recorded")


def test_a_script_without_torch_runs_as_always(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import sys, os\nprint(sys.argv[1:], 'PYTHONPATH' in os.environ, __name__)\n")
    done = fsdp_profile("run", "-n", "1", "-o", str(tmp_path / "run"), str(script), "--flag", "a b", env={})
    assert done.stdout == "['--flag', 'a b'] False __main__\n"
    assert done.returncode == 0
    assert "fsdp-profile: warning: nothing distributed was seen: no FSDP or DDP module ran a forward" in done.stderr
    assert read_manifest(tmp_path / "run").ranks[0].ending is Ending.COMPLETED
