"""What the ledger matrix found: the smallest recordings of scripts whose bytes once had a wrong category or none.

Sizes of the script: x is 8 x 64 fp32, a block's parameters 64 x 256 twice, the head 64 x 64, the scale 64.
"""

from collections.abc import Callable
from typing import Any

import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest.tables import numbers

STEPS = 3
WIDTH = 64
X = 8 * WIDTH * 4
HIDDEN = 8 * 256 * 4
BLOCK = 2 * 64 * 256 * 4
HEAD = 64 * 64 * 4
SCALE = 64 * 4
MODEL = 2 * BLOCK + HEAD + SCALE
STATES = {Category.PARAM, Category.GRAD, Category.OPTIMIZER_STATE}

Record = Callable[[str], Run]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The recording of a mode, made on first use; whatever the mode, it adds up and nothing is unknown."""
    made: dict[str, Run] = {}

    def get(mode: str) -> Run:
        if mode not in made:
            folder = tmp_path_factory.mktemp("ledger") / mode
            done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(folder), str(SCRIPTS / "ledger.py"), mode)
            assert done.returncode == 0, done.stderr
            made[mode] = load_run(folder)
            assert made[mode].manifest.warnings == []
            for rank in made[mode].ranks:
                law = ledger.conservation(made[mode], rank=rank)
                assert (law.category_errors, law.reported_errors) == (0, 0)
                assert all(peak.unknown_ratio <= 0.01 for peak in ledger.peak_of_steps(made[mode], rank=rank))
        return made[mode]

    return get


def blocks(run: Run, **wanted: Any) -> list[dict[str, Any]]:
    rows = run.table("allocations", rank=0).to_pylist()
    return [row for row in rows if all(row[column] == value for column, value in wanted.items())]


def most(run: Run, category: Category) -> int:
    steps = numbers(run.table("memory_samples", rank=0), "step")
    return int(ledger.timeline(run, rank=0).by_category[category][steps >= 0].max())


def test_a_checkpoint_inside_a_unit_makes_activations_of_that_unit(record: Record) -> None:
    run = record("recompute-inside")
    for step in range(STEPS):
        again = blocks(run, step=step, name="recomputed")
        assert {(row["category"], row["phase"], row["basis"]) for row in again} == {
            ("ACTIVATION", "BACKWARD", "LIFETIME")
        }
        # relu's output is kept for `down`; `up`'s output and the block's own die, or are not made, in the recomputation
        assert sorted((row["unit"], row["size_bytes"]) for row in again) == [(0, HIDDEN), (1, HIDDEN)]


@pytest.mark.parametrize("mode", ["recompute-outside", pytest.param("recompute-reentrant", marks=pytest.mark.slow)])
def test_a_checkpoint_around_units_leaves_phases_and_forwards_whole(record: Record, mode: str) -> None:
    run = record(mode)
    phases = [(row["step"], row["phase"]) for row in run.table("phases", rank=0).to_pylist()]
    for step in range(STEPS):
        assert [phase for at, phase in phases if at == step and phase != "OTHER"] == [
            "FORWARD",
            "BACKWARD",
            "OPTIMIZER",
        ]
        kept = {row["unit"] for row in blocks(run, step=step, name="recomputed", size_bytes=HIDDEN)}
        assert kept == {0, 1}
    spans = run.table("unit_spans", rank=0).to_pylist()
    ends = {row["step"]: row["end_ns"] for row in run.table("phases", rank=0).to_pylist() if row["phase"] == "BACKWARD"}
    again = [row for row in spans if row["kind"] == "FORWARD" and row["phase"] == "BACKWARD"]
    assert len(again) == 2 * STEPS
    # Recomputation stops early, without a post-forward; the unit's forward ends with it and not with the backward.
    assert all(row["end_ns"] < ends[row["step"]] for row in again)


def test_parameters_outside_of_every_unit_are_kept_by_the_rank(record: Record) -> None:
    run = record("recompute-inside")
    (scale,) = blocks(run, name="scale", category="PARAM")
    assert (scale["size_bytes"], scale["basis"]) == (SCALE, "TAG")
    (unwrapped,) = blocks(run, name="held by the script", category="PARAM")
    assert unwrapped["size_bytes"] == HEAD
    # The units' halves, the scale, and a module that nothing wraps and that holds as much as the head.
    assert most(run, Category.PARAM) == (MODEL - SCALE) // 2 + SCALE + HEAD


def test_what_the_script_made_before_training_and_keeps_is_its_input(record: Record) -> None:
    run = record("recompute-inside")
    held = [row["size_bytes"] for row in blocks(run, name="held by the script", category="INPUT")]
    assert sorted(size for size in held if size > 8) == sorted([SCALE, *[BLOCK // 4] * 4, HEAD // 2])


def test_what_a_communication_hook_allocates_is_the_buckets(record: Record) -> None:
    run = record("ddp-hook")
    compressed = blocks(run, phase="BACKWARD", size_bytes=MODEL // 2)
    assert [(row["step"], row["category"], row["basis"]) for row in compressed] == [
        (step, "BUCKET", "REGION") for step in range(STEPS)
    ]


def test_gradients_of_ddp_that_wait_lie_beside_the_buckets_that_are_their_views(record: Record) -> None:
    run = record("ddp-no-sync")
    assert most(run, Category.GRAD) == MODEL
    assert most(run, Category.UNSHARDED_GRAD) == MODEL


def test_low_precision_gradients_of_no_shard_are_not_the_kept_ones(record: Record) -> None:
    run = record("no-shard")
    assert most(run, Category.GRAD) == MODEL
    assert most(run, Category.UNSHARDED_GRAD) == MODEL // 2


def test_the_compute_copy_of_no_shard_is_parameters_and_no_gather_buffer(record: Record) -> None:
    run = record("no-shard")
    assert most(run, Category.UNSHARDED_PARAM) == MODEL // 2
    assert most(run, Category.ALL_GATHER) == 0


def test_a_quantised_parameter_is_its_data_and_its_scales(record: Record) -> None:
    run = record("quantised")
    kept = blocks(run, name="head.weight", category="PARAM")
    assert sorted((row["size_bytes"], row["basis"]) for row in kept) == [(WIDTH * 4, "TAG"), (WIDTH * WIDTH, "TAG")]
    # The scale of the model, which no unit has, the units' halves, and the module that nothing wraps.
    kept_bytes = SCALE + WIDTH * WIDTH + WIDTH * 4
    assert most(run, Category.PARAM) == BLOCK + kept_bytes + HEAD
    model = run.manifest.model
    assert model.param_bytes == 2 * BLOCK + kept_bytes
    assert model.dtypes == {"float32": 2 * BLOCK // 4 + WIDTH, "int8": WIDTH * WIDTH}


def test_the_state_of_a_grad_scaler_is_optimizer_state(record: Record) -> None:
    run = record("ddp-scaler")
    states = blocks(run, category="OPTIMIZER_STATE")
    assert sorted({row["name"] for row in states}) == [
        "GradScaler._growth_tracker",
        "GradScaler._scale",
        "momentum_buffer",
    ]
    assert most(run, Category.OPTIMIZER_STATE) == MODEL + 4 + 4


def test_a_step_that_fsdp1_s_own_grad_scaler_skips_is_a_step(record: Record) -> None:
    run = record("fsdp1-scaler")
    steps = [(row["step"], row["complete"]) for row in run.table("steps", rank=0).to_pylist()]
    assert steps[:4] == [(-1, True), (0, True), (1, True), (2, True)]
    phases = [(row["step"], row["phase"]) for row in run.table("phases", rank=0).to_pylist()]
    assert [step for step, phase in phases if phase == "OPTIMIZER"] == [0, 2]
