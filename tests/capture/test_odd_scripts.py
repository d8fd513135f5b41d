"""What real scripts do beside training: the recording neither breaks it nor is broken by it."""

import json
from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile, torchrun

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.layout import capture_log, raw_dir

ODD = str(SCRIPTS / "odd.py")
WINDOW = list(range(8))  # steps of the default window
STEPS_RECORDED = {
    "pending": WINDOW,  # sends under way at every step's end
    "patches": WINDOW,  # the script wraps what we wrapped
    "raise": WINDOW,  # a step() that raised
    "retain": WINDOW,  # asynchronous collectives waited for at once
    "region": WINDOW,  # one record_function around the loop
    "profiler": [],  # the script's own profiler has the right of way
}


IN_A_HURRY = ("pending", "profiler")
"""What broke a recording before; the others run with make test-all."""


@pytest.mark.parametrize(
    "mode", [mode if mode in IN_A_HURRY else pytest.param(mode, marks=pytest.mark.slow) for mode in STEPS_RECORDED]
)
def test_output_and_exit_code_stay_the_scripts_own(tmp_path: Path, mode: str) -> None:
    bare = torchrun("--nproc-per-node=2", ODD, mode)
    ours = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), ODD, mode)
    assert (bare.returncode, ours.returncode) == (0, 0), ours.stderr
    assert ours.stdout == bare.stdout
    run = load_run(tmp_path / "run")
    for rank in run.ranks:
        assert ledger.conservation(run, rank=rank).category_errors == 0
        assert [peak.step for peak in ledger.peak_of_steps(run, rank=rank)] == STEPS_RECORDED[mode]


def test_a_forked_child_that_ends_by_sys_exit_does_not_hang(tmp_path: Path) -> None:
    """Without us gloo's group may hang it as well, so there is nothing to compare with."""
    ours = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), ODD, "fork")
    assert ours.returncode == 0, ours.stderr
    assert "child 3\n" in ours.stdout
    assert [peak.step for peak in ledger.peak_of_steps(load_run(tmp_path / "run"), rank=0)] == [0, 1]


def test_the_script_s_own_profiler_is_said(tmp_path: Path) -> None:
    ours = fsdp_profile("run", "-n", "1", "--no-kineto", "-o", str(tmp_path / "run"), ODD, "profiler")
    assert "allocator events not recorded: the script runs its own torch.profiler, from step 0 on" in ours.stderr
    assert not load_run(tmp_path / "run").manifest.complete


@pytest.mark.slow
def test_a_recording_that_grows_is_written_inside_a_step_and_still_adds_up(tmp_path: Path) -> None:
    """With no room at all every forward of a micro-batch writes what came before it; the totals go on."""
    script = str(SCRIPTS / "variants.py")
    done = fsdp_profile("run", "-n", "2", "--buffer", "0", "-o", str(tmp_path / "run"), script, "accumulate")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert run.manifest.warnings == []
    lines = [json.loads(line) for line in capture_log(run.path, 0).read_text().splitlines()]
    chunks = [(line["step"], line["in_step"]) for line in lines if line["kind"] == "chunk"]
    assert chunks.count((1, True)) == 2 and (1, False) in chunks  # two micro-batches
    assert len(list(raw_dir(run.path, 0).glob("kineto_00001*.json"))) == 3
    for rank in run.ranks:
        law = ledger.conservation(run, rank=rank)
        assert (law.category_errors, law.reported_errors) == (0, 0)
        steps = run.table("steps", rank=rank).to_pylist()
        assert [(s["step"], s["complete"], s["recorded"]) for s in steps[:4]] == [(-1, True, True)] + [
            (step, True, True) for step in range(3)
        ]
