"""From a measured run to others: on the sample runs, whose other configurations were measured too."""

from pathlib import Path
from typing import Any

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import InputError, UsageError
from fsdp_profile.core.schema import Phase, Strategy, UnitKind
from fsdp_profile.plan.calibrate import Target, Verification, measured_row, predict
from fsdp_profile.plan.formulas.activations import Checkpointing
from fsdp_profile.plan.formulas.costs import Basis
from fsdp_profile.plan.formulas.strategies import Layout, World
from fsdp_profile.plan.measured import layout_of, sizes_of, world_of

SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"
P = 923_904 * 4
ROOT_BYTES, UNIT_BYTES = 541_696, 788_480


def sample(name: str) -> Run:
    return load_run(SAMPLES / name)


def one(run: Run, layout: Layout, size: int, **more: object):
    (row,) = predict(run, [Target(layout=layout, world=World(size=size), **more)])
    return row


@pytest.mark.parametrize("name", ["gpt-ddp-2ranks", "gpt-fsdp1-2ranks", "gpt-fsdp2-2ranks", "gpt-hsdp-4ranks"])
def test_a_run_predicts_itself(name: str) -> None:
    run = sample(name)
    (row,) = predict(run, [Target(layout=layout_of(run), world=world_of(run))])
    measured = measured_row(run)
    assert row.peak_bytes == pytest.approx(measured.peak_bytes, rel=0.015)  # of one steady step; the worst of all
    assert (row.param_bytes, row.grad_bytes, row.optimizer_bytes) == (
        measured.param_bytes, measured.grad_bytes, measured.optimizer_bytes,
    )  # fmt: skip
    assert (row.basis, measured.basis) == (Basis.CALIBRATED, Basis.MEASURED)


def test_sizes_of_a_model_are_the_same_whatever_recorded_it() -> None:
    sharded, replicated = (sizes_of(sample(n), rank=0) for n in ("gpt-fsdp2-2ranks", "gpt-ddp-2ranks"))
    for sizes in (sharded, replicated):
        assert (sizes.root_bytes, sizes.unit_bytes, sizes.num_units) == (ROOT_BYTES, UNIT_BYTES, 4)
        assert sizes.unsharded_bytes == sizes.trained_bytes == P
    assert (sharded.shards, replicated.shards) == (2, 1)


def test_states_scale_with_the_shards() -> None:
    row = one(sample("gpt-fsdp2-2ranks"), Layout.FSDP, 8)
    assert (row.param_bytes, row.grad_bytes) == (P // 8, P // 8)
    assert row.gathered_bytes == one(sample("gpt-fsdp2-2ranks"), Layout.FSDP, 2).gathered_bytes


@pytest.mark.parametrize(
    ("source", "target", "within"),
    [
        ("gpt-ddp-2ranks", "gpt-ddp-4ranks", 0.001),
        ("gpt-fsdp2-2ranks", "gpt-ddp-2ranks", 0.001),
        ("gpt-hsdp-4ranks", "gpt-ddp-4ranks", 0.001),
        ("gpt-fsdp2-2ranks", "gpt-hsdp-4ranks", 0.02),
        ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks", 0.05),
        ("gpt-ddp-4ranks", "gpt-hsdp-4ranks", 0.05),
        ("gpt-fsdp2-no-reshard-2ranks", "gpt-fsdp2-2ranks", 0.05),
        ("gpt-fsdp2-2ranks", "gpt-fsdp2-no-reshard-2ranks", 0.05),
    ],
)
def test_from_one_measured_run_to_another(source: str, target: str, within: float) -> None:
    there = sample(target)
    (row,) = predict(sample(source), [Target(layout=layout_of(there), world=world_of(there))])
    found = Verification(predicted=row, measured=measured_row(there))
    assert abs(found.error_ratio) <= within


def built(**phases: str) -> Run:
    """Two steps of FSDP2 on 2 ranks: shard 100, states 200, activations 400 in forward, gathered 50, input 8."""
    run = RunBuilder().set(world_size=2, strategy_detail="FSDP2 reshard_after_forward=True, 2 units, 2 ranks")
    run.unit("layers.0", numel=25, sharded=50, unsharded=100).unit("", numel=25, sharded=50, unsharded=100)
    run.alloc(at=1, size=100, category=Category.PARAM)
    for step in range(2):
        t = 100 * step
        run.step(step, t, t + 100)
        run.phase(Phase.FORWARD, t, t + 40, step=step).phase(Phase.BACKWARD, t + 40, t + 80, step=step)
        run.phase(Phase.OPTIMIZER, t + 80, t + 100, step=step)
        run.alloc(at=t + 5, free=t + 70, size=400, category=Category.ACTIVATION)
        run.alloc(at=t + 6, free=t + 30, size=50, category=Category.UNSHARDED_PARAM)
        run.alloc(at=t + 4, free=t + 95, size=8, category=Category.INPUT)
        run.alloc(at=t + 60, free=t + 98, size=100, category=Category.GRAD)
        if step == 0:
            run.alloc(at=t + 85, size=200, category=Category.OPTIMIZER_STATE)
    return run.build()


def test_batch_and_sequence_scale_what_they_made() -> None:
    run = built()
    assert one(run, Layout.FSDP, 2).peak_bytes == 100 + 200 + 400 + 8 + 100
    assert one(run, Layout.FSDP, 2, batch_ratio=2.0).peak_bytes == 100 + 200 + 800 + 16 + 100
    assert one(run, Layout.FSDP, 2, batch_ratio=2.0, seq_ratio=0.5).peak_bytes == 808


def test_the_peak_may_move() -> None:
    row = one(built(), Layout.FSDP, 200)  # of states nothing is left: forward, where 50 are gathered, is the peak
    assert row.peak_bytes == 1 + 2 + 400 + 8 + 50
    assert row.remark == "peak in forward"


def test_accumulation_keeps_gradients_through_forward() -> None:
    assert one(built(), Layout.FSDP, 2, accumulates=True).peak_bytes == 100 + 200 + 400 + 8 + 50 + 100


def test_checkpointing_keeps_inputs_and_one_layer() -> None:
    row = one(built(), Layout.FSDP, 2, checkpointing=Checkpointing.FULL)
    assert row.by_category["ACTIVATION"] == round(400 * 2 / 34 + 400)  # one unit: its layer is the whole again


def test_what_cannot_be_asked() -> None:
    with pytest.raises(UsageError, match="--batch-ratio 0"):
        Target(layout=Layout.DDP, world=World(size=2), batch_ratio=0)
    with pytest.raises(UsageError, match="--ac selective"):
        Target(layout=Layout.DDP, world=World(size=2), checkpointing=Checkpointing.SELECTIVE)
    with pytest.raises(InputError, match="no allocator events"):
        predict(RunBuilder().rank(0).build(), [])


@pytest.mark.parametrize(
    ("strategy", "unit", "layout"),
    [
        (Strategy.DDP, {"kind": UnitKind.DDP_BUCKET, "shard_size": 1, "reshard_after_forward": ""}, Layout.DDP),
        (Strategy.FSDP1, {"kind": UnitKind.FSDP1, "shard_size": 1, "sharding": "NO_SHARD"}, Layout.DDP),
        (Strategy.FSDP1, {"kind": UnitKind.FSDP1, "sharding": "SHARD_GRAD_OP"}, Layout.FSDP_NO_RESHARD),
        (Strategy.FSDP1, {"kind": UnitKind.FSDP1, "sharding": "FULL_SHARD"}, Layout.FSDP),
        (Strategy.FSDP2, {"reshard_after_forward": "no"}, Layout.FSDP_NO_RESHARD),
        (Strategy.FSDP2, {"reshard_after_forward": "yes"}, Layout.FSDP),
        (Strategy.FSDP2, {"reshard_after_forward": "yes", "shard_size": 1}, Layout.FSDP),
        (Strategy.HSDP, {"replicate_size": 2}, Layout.HSDP),
    ],
)
def test_the_layout_of_a_run_is_read_from_its_units(strategy: Strategy, unit: dict[str, Any], layout: Layout) -> None:
    run = RunBuilder(strategy=strategy).unit("", **{**unit, "reshard_after_forward": "no"}).unit("layers.0", **unit)
    assert layout_of(run.set(strategy_detail="whatever it says").build()) is layout
