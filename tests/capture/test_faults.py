"""Faults made for real, recorded, and named by a finding with its value."""

from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.memory.ledger import peak_of_phases
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.ingest.tables import numbers, strings

WIDTH = 256
BLOCK = 2 * WIDTH * 4 * WIDTH
MIB = 1 << 20


def record(mode: str, path: Path) -> Run:
    script = str(SCRIPTS / "faulty.py")
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(path / "run"), script, mode)
    assert done.returncode == 0, done.stderr
    return load_run(path / "run")


def claims(run: Run) -> dict[str, str]:
    return {found.rule: found.claim for found in findings(run)}


EXPECTED = {
    "mixed-frozen": (
        "mixed-frozen",
        f"0 (and 3 units like it) mixes {BLOCK // 2:,} trainable and {BLOCK // 2:,} frozen parameters (50.00 % "
        f"frozen): before its reduce-scatter it holds a gradient of all {BLOCK:,} elements, 2.00 MiB in 32 bit.",
    ),
    "no-wrap": (
        "one-unit",
        "1 unit, (root), holds 100.0 % of the parameters: 8.00 MiB are gathered at once, in forward and in backward.",
    ),
    "no-sync": (
        "unsharded-gradients-held",
        "8.00 MiB of gradients are unsharded since micro-batch 0 of step 0: accumulation without synchronisation keeps "
        "the whole gradient of every parameter.",
    ),
    "frozen": (
        "frozen-in-float32",
        f"{2 * BLOCK:,} frozen parameters are stored in float32, 4 B each: 2.00 MiB on this rank, where bfloat16 would "
        "need 1.00 MiB.",
    ),
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_a_fault_is_named_with_its_value(tmp_path: Path, mode: str) -> None:
    rule, claim = EXPECTED[mode]
    run = record(mode, tmp_path)
    assert claims(run).get(rule) == claim
    units = run.table("units", rank=0)
    share = 2 if mode in ("mixed-frozen", "frozen") else 1
    assert numbers(units, "trainable_numel").sum() == 4 * BLOCK // share


def test_an_optimizer_built_before_sharding_is_a_problem(tmp_path: Path) -> None:
    found = {f.rule: f for f in findings(record("optimizer-first", tmp_path))}["optimizer-of-other-params"]
    assert found.claim == (
        f"AdamW holds 8 parameters that are not in the model, of 8 ({4 * BLOCK * 4 // MIB}.00 MiB): stepping them "
        "trains nothing and keeps them alive."
    )


def test_a_tensor_kept_in_every_step_is_growth(tmp_path: Path) -> None:
    [found] = [f for f in findings(record("leak", tmp_path)) if f.rule == "leak"]
    assert found.evidence["bytes_per_step"] == 8 * WIDTH * 4
    assert "from aten::empty_strided in other:" in found.claim  # what clone allocates with


def phases(run: Run, step: int) -> list[str]:
    table = run.table("phases", rank=0)
    found = strings(table, "phase")[numbers(table, "step") == step].tolist()
    return [phase for phase in found if phase != "OTHER"]


def test_a_whole_state_dict_is_a_phase_of_its_own(tmp_path: Path) -> None:
    """After steps 1, 3 and 5 the whole model is gathered and saved: its 8 MiB, beside the shards, are the peak."""
    run = record("checkpoint", tmp_path)
    assert run.manifest.warnings == []
    train = ["FORWARD", "BACKWARD", "OPTIMIZER"]
    assert [phases(run, step) for step in range(4)] == [
        train, train, ["CHECKPOINT", "CHECKPOINT", *train], train,
    ]  # fmt: skip
    peaks = peak_of_phases(run, rank=0)
    assert peaks["CHECKPOINT"].allocated_bytes >= 4 * 4 * BLOCK
    assert peaks["CHECKPOINT"].unknown_ratio <= 0.01


def test_a_forward_without_gradients_is_an_evaluation(tmp_path: Path) -> None:
    run = record("evaluate", tmp_path)
    train = ["FORWARD", "BACKWARD", "OPTIMIZER"]
    assert [phases(run, step) for step in range(4)] == [train, train, ["EVALUATION", *train], train]
    assert peak_of_phases(run, rank=0)["EVALUATION"].unknown_ratio <= 0.01
