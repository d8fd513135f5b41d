"""Bytes of a step: whole arrays as recorded, and what a ring of N ranks sends of them."""

from builder import RunBuilder

from fsdp_profile.analysis.collectives.traffic import StepTraffic, step_traffic, traffic
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.schema import CollectiveKind

GATHER, SCATTER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE


def two_steps() -> RunBuilder:
    return RunBuilder().step(0, 0, 100).step(1, 100, 200)


def test_calls_are_summed_by_step_kind_and_group() -> None:
    run = (
        two_steps()
        .collective(GATHER, 0, 1, size_bytes=400, group_size=4)
        .collective(GATHER, 1, 2, size_bytes=40, group_size=4)
        .collective(GATHER, 2, 3, size_bytes=200, group_size=2)
        .collective(SCATTER, 3, 4, size_bytes=400, group_size=4)
        .collective(REDUCE, 100, 101, size_bytes=100, group_size=2, step=1)
        .collective(REDUCE, 300, 301, size_bytes=999, step=-1)
        .build()
    )
    names = ["step", "kind", "group_size", "count", "num_unknown", "size_bytes", "wire_bytes"]
    found = traffic(run, rank=0)
    assert found.column_names == names
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (0, "ALL_GATHER", 2, 1, 0, 200, 100),
        (0, "ALL_GATHER", 4, 2, 0, 440, 330),
        (0, "REDUCE_SCATTER", 4, 1, 0, 400, 300),
        (1, "ALL_REDUCE", 2, 1, 0, 100, 100),
    ]


def steps_of(*sizes: int | None) -> Run:
    """One all-reduce on two ranks in each step."""
    run = RunBuilder()
    for step, size in enumerate(sizes):
        run.step(step, step * 10, step * 10 + 10)
        run.collective(REDUCE, step * 10, step * 10 + 1, size_bytes=size, step=step)
    return run.build()


def test_a_step_is_the_median_one() -> None:
    assert step_traffic(steps_of(900, 100, 300), rank=0) == StepTraffic(size_bytes=300, wire_bytes=300, num_steps=3)
    assert step_traffic(steps_of(900, 100), rank=0) == StepTraffic(size_bytes=100, wire_bytes=100, num_steps=2)


def test_calls_of_unknown_size_are_counted_apart() -> None:
    run = steps_of(None, 100, 300)
    assert traffic(run, rank=0).to_pylist()[0] == {
        "step": 0, "kind": "ALL_REDUCE", "group_size": 2, "count": 1, "num_unknown": 1, "size_bytes": None,
        "wire_bytes": None,
    }  # fmt: skip
    assert step_traffic(run, rank=0) == StepTraffic(size_bytes=100, wire_bytes=100, num_steps=2, num_unknown=1)
    assert step_traffic(steps_of(None), rank=0) is None
    mixed = two_steps().collective(REDUCE, 0, 1, size_bytes=8).collective(REDUCE, 2, 3, size_bytes=None)
    found = mixed.collective(GATHER, 4, 5, size_bytes=6, group_size=None).build()
    assert step_traffic(found, rank=0) == StepTraffic(size_bytes=8, wire_bytes=8, num_steps=1, num_unknown=2)


def test_a_step_that_was_cut_off_does_not_count() -> None:
    run = RunBuilder().step(0, 0, 10).step(1, 10, 20, complete=False)
    run.collective(REDUCE, 0, 1, size_bytes=8).collective(REDUCE, 11, 12, size_bytes=2, step=1)
    assert step_traffic(run.build(), rank=0) == StepTraffic(size_bytes=8, wire_bytes=8, num_steps=1)
    assert step_traffic(RunBuilder().step(0, 0, 10).build(), rank=0) is None
