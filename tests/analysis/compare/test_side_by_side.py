"""Runs beside each other by phase and by unit, and DDP's peak estimated from a sharded run."""

from builder import RunBuilder

from fsdp_profile.analysis.compare.peaks import compare, waterfall_text
from fsdp_profile.analysis.compare.replicated import replicated_estimate
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Model
from fsdp_profile.core.schema import CollectiveKind, Phase, Strategy, UnitKind


def ddp(path, *, named=True):
    run = RunBuilder(path.name, strategy=Strategy.DDP, path=path).unit(
        "bucket 0", kind=UnitKind.DDP_BUCKET, shard_size=1
    )
    for name, size in (("layers.0.w", 40), ("layers.1.w", 40), ("head.w", 20)):
        run.alloc(at=1, size=size, category=Category.PARAM, name=name if named else "")
    run.alloc(at=2, size=100, category=Category.BUCKET)
    return run.phase(Phase.FORWARD, 0, 10).phase(Phase.BACKWARD, 10, 10**9).alloc(at=20, free=30, size=7).build()


def fsdp(path):
    run = RunBuilder(path.name, path=path).unit("layers.0").unit("layers.1").unit("")
    for unit, size in enumerate((20, 20, 10)):
        run.alloc(at=1, size=size, category=Category.PARAM, unit=unit)
    run.alloc(at=5, free=15, size=40, category=Category.UNSHARDED_PARAM, unit=1)
    return run.phase(Phase.FORWARD, 0, 10).phase(Phase.BACKWARD, 10, 10**9).build()


def test_a_replica_is_told_by_the_units_its_parameters_are_in(tmp_path):
    found = compare([ddp(tmp_path / "ddp"), fsdp(tmp_path / "fsdp")])
    assert [(row.name, row.sizes_bytes) for row in found.units] == [
        ("layers.0", (40, 20)),
        ("layers.1", (40, 60)),
        ("", (20, 10)),
    ]
    assert [(row.name, row.sizes_bytes) for row in found.phases] == [("FORWARD", (200, 90)), ("BACKWARD", (207, 50))]


def test_a_replica_without_names_is_not_divided_among_units(tmp_path):
    found = compare([ddp(tmp_path / "ddp", named=False), fsdp(tmp_path / "fsdp")])
    assert [row.sizes_bytes for row in found.units] == [(None, 20), (None, 60), (None, 10)]


def test_the_changes_add_up_to_what_was_saved(tmp_path):
    found = compare([ddp(tmp_path / "ddp"), fsdp(tmp_path / "fsdp")])
    mine = found.runs[1]
    assert mine.waterfall == [
        (Category.BUCKET, -100),
        (Category.PARAM, -50),
        (Category.UNSHARDED_PARAM, 40),
        (Category.ACTIVATION, -7),
    ]
    assert sum(delta for _, delta in mine.waterfall) == -mine.saved_bytes == 90 - 207
    assert waterfall_text(mine) == "-100 B DDP buckets, -50 B parameters, +40 B gathered parameters, -7 B activations"


def test_a_step_costs_its_collectives(tmp_path):
    run = RunBuilder("a", path=tmp_path / "a").alloc(at=1, size=8)
    for step in range(3):
        begin = 100 * step
        run.step(step, begin, begin + 100).kernel(begin, begin + 60, step=step)
        run.collective(CollectiveKind.ALL_REDUCE, begin + 50, begin + 90, step=step, size_bytes=1000)
    [cost] = {c.cost for c in compare([run.build(), ddp(tmp_path / "b")]).runs if c.run.name == "a"}
    assert (cost.step_ns, cost.size_bytes, cost.wire_bytes) == (100, 1000, 1000)
    assert (cost.communication_ns, cost.exposed_ns, cost.exposed_ratio) == (40, 30, 0.3)


def test_of_runs_under_ddp_the_one_asked_for_is_the_baseline(tmp_path):
    runs = []
    for asked in ("zero1", "as-is", "ddp"):
        run = RunBuilder(asked, strategy=Strategy.DDP, path=tmp_path / asked).set(extra={"as": asked})
        runs.append(run.alloc(at=1, size=8).build())
    assert compare(runs).baseline.name == "ddp"
    assert compare(runs[:2]).baseline.name == "as-is"


def test_ddp_is_estimated_from_shards_and_the_runs_own_activations(tmp_path):
    model = Model(name="GPT", numel=100, trainable_numel=50, num_params=4, param_bytes=400)
    run = RunBuilder("f", path=tmp_path / "f").set(model=model).unit("", shard_size=4)
    run.alloc(at=1, size=100, category=Category.PARAM)
    run.alloc(at=2, free=5, size=400, category=Category.UNSHARDED_PARAM)
    run.alloc(at=3, free=6, size=70)
    run.alloc(at=7, size=30, category=Category.OPTIMIZER_STATE)
    found = replicated_estimate(run.build())
    assert found is not None
    # 4 shards of each state; half of the parameters are trainable, and have a bucket.
    assert found.by_category == {
        Category.PARAM: 400,
        Category.BUCKET: 200,
        Category.OPTIMIZER_STATE: 120,
    }
    assert (found.peak_bytes, found.shards, found.source) == (720, 4, "f")


def test_a_run_that_does_not_shard_gives_no_estimate(tmp_path):
    assert replicated_estimate(ddp(tmp_path / "ddp")) is None
