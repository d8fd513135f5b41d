from builder import RunBuilder

from fsdp_profile.analysis.findings.questions import Gathering, Sharding, Unsharded, answers
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, Strategy, UnitKind


def test_a_newcomers_questions_of_a_sharded_run():
    run = RunBuilder("sharded").step(0, 0, 100).unit("").unit("layers.0").unit("layers.1").kernel(12, 20)
    run.alloc(at=1, size=100, category=Category.OPTIMIZER_STATE)
    run.alloc(at=2, size=50, category=Category.PARAM)
    run.alloc(at=3, size=30, category=Category.UNSHARDED_PARAM, unit=1)
    run.alloc(at=4, size=8, category=Category.UNSHARDED_PARAM, unit=0)
    run.alloc(at=5, size=5, category=Category.ALL_GATHER)
    run.alloc(at=6, free=7, size=7, category=Category.ACTIVATION)
    run.alloc(at=50, free=51, size=1, category=Category.UNSHARDED_PARAM, unit=2)
    for rank, start in ((0, 10), (1, 14)):
        run.rank(rank).collective(CollectiveKind.ALL_GATHER, start, 18, size_bytes=4, group="0", sequence=1)
    found = answers(run.build())
    assert (found.peak.allocated_bytes, found.peak.rank) == (200, 0)
    assert next(iter(found.peak.by_category.items())) == (Category.OPTIMIZER_STATE, 100)
    assert found.unsharded == (Unsharded(name="layers.0", size_bytes=30), Unsharded(name="", size_bytes=8))
    assert found.sharding == Sharding(shards=2, states_bytes=150, transient_bytes=43, activation_bytes=7)
    assert found.sharding.saved_states_bytes == 150
    assert found.gathering == Gathering(rank=0, total_ns=8, exposed_ns=2, num_steps=1)
    assert (found.late.rank, found.late.wait_caused_ns, found.num_matched) == (1, 4, 1)


def test_ddp_shards_and_gathers_nothing():
    run = RunBuilder("ddp", strategy=Strategy.DDP).unit("bucket 0", kind=UnitKind.DDP_BUCKET, shard_size=1)
    found = answers(run.alloc(at=1, size=3).build())
    assert (found.unsharded, found.sharding, found.gathering, found.is_single_rank) == ((), None, None, True)


def test_gathered_parameters_of_no_known_unit_are_told_too():
    run = RunBuilder("unnamed").step(0, 0, 100).unit("a").alloc(at=1, size=2, category=Category.UNSHARDED_PARAM, unit=0)
    run.alloc(at=2, size=3, category=Category.UNSHARDED_PARAM).alloc(at=3, size=4, category=Category.UNSHARDED_PARAM)
    assert answers(run.build()).unsharded == (Unsharded(name=None, size_bytes=7), Unsharded(name="a", size_bytes=2))


def test_nothing_recorded_has_no_answer():
    found = answers(RunBuilder("bare").rank(0).build())
    assert (found.peak, found.sharding, found.gathering, found.late, found.num_matched) == (None, None, None, None, 0)
