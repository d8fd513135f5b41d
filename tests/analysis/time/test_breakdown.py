"""Where the time went: the parts add up, busy time is a union, steps leave nothing out."""

from pathlib import Path

import numpy as np
import pytest
from builder import RunBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdp_profile.analysis.spans.intervals import union
from fsdp_profile.analysis.time.breakdown import NO_LAUNCHES, ON_CPU, TimeBreakdown, exposed_by_step, queued_spans
from fsdp_profile.analysis.time.breakdown import step_breakdowns as by_step
from fsdp_profile.analysis.time.breakdown import time_breakdown as breakdown
from fsdp_profile.core.schema import SETUP_STEP, CollectiveKind, Phase


def device(path: Path) -> RunBuilder:
    return RunBuilder(path=path / "run").set(device_type="cuda")


def spans(*listed: tuple[int, int]):
    return union(*(np.array(column, np.int64) for column in zip(*listed, strict=True)))


def test_each_part_is_a_union_and_they_add_up(tmp_path):
    #   0   10   20   30   40   50   60   70   80  100
    #   compute  ==========                         ==   two kernels at once, and one at the end
    #   all-gather    ===============                    20 of its 30 alone
    #   copy                           ====              5 beside the all-gather, 5 alone
    run = (
        device(tmp_path)
        .kernel(10, 25)
        .kernel(15, 30)
        .collective(CollectiveKind.ALL_GATHER, 20, 50)
        .kernel(45, 55, name="Memcpy HtoD (Pinned -> Device)")
        .kernel(90, 100)
        .build()
    )
    assert breakdown(run, rank=0) == TimeBreakdown(
        span_ns=90,
        compute_ns=30,
        communication_ns=30,
        exposed_ns=20,
        memory_ns=5,
        idle_ns=35,
        host_bound_ns=None,
        host_bound_not_recorded=NO_LAUNCHES,
    )
    found = breakdown(run, rank=0)
    assert (found.busy_ns, found.overlapped_ns) == (55, 10)
    assert (found.overlap_ratio, found.idle_ratio, found.compute_ratio) == (10 / 30, 35 / 90, 30 / 90)


def test_a_rank_without_communication_has_no_overlap(tmp_path):
    run = device(tmp_path).kernel(0, 10).build()
    assert (breakdown(run, rank=0).communication_ns, breakdown(run, rank=0).overlap_ratio) == (0, None)


def test_communication_beside_copies_only_is_exposed(tmp_path):
    run = device(tmp_path).kernel(0, 10, name="Memset (Device)").collective(CollectiveKind.BROADCAST, 5, 15).build()
    found = breakdown(run, rank=0)
    assert (found.compute_ns, found.exposed_ns, found.memory_ns, found.idle_ns) == (0, 10, 5, 0)


def test_nothing_is_said_without_kernels(tmp_path):
    run = device(tmp_path).collective(CollectiveKind.ALL_GATHER, 0, 10).build()
    assert breakdown(run, rank=0) is None
    assert by_step(run, rank=0) == {}


def test_idle_is_the_hosts_while_nothing_launched_waits(tmp_path):
    #  works     ====            ====      ====
    #  queued          waits ----|      --|            idle 10..30 and 34..50; the queue is empty 10..22 and 34..47
    run = device(tmp_path).kernel(0, 10).kernel(30, 34).kernel(50, 60).build()
    found = breakdown(run, rank=0, queued=spans((22, 30), (47, 50)))
    assert (found.idle_ns, found.host_bound_ns, found.host_bound_not_recorded) == (36, 25, None)


def test_on_cpu_operators_are_the_compute_and_there_is_no_host_to_wait_for(tmp_path):
    run = (
        RunBuilder(path=tmp_path / "run")
        .step(0, 0, 100)
        .kernel(0, 30)
        .collective(CollectiveKind.ALL_REDUCE, 20, 60)
        .kernel(70, 80)
        .build()
    )
    found = breakdown(run, rank=0, queued=spans((0, 1)))
    assert (found.span_ns, found.compute_ns, found.exposed_ns, found.idle_ns) == (80, 40, 30, 10)
    assert (found.host_bound_ns, found.host_bound_not_recorded) == (None, ON_CPU)
    assert breakdown(run, rank=0, step=0).span_ns == 100  # the step is longer than its work


def test_a_step_takes_its_late_device_work_with_it(tmp_path):
    run = (
        device(tmp_path)
        .step(SETUP_STEP, 0, 100)
        .step(0, 100, 200)
        .step(1, 200, 300)
        .kernel(10, 20, step=SETUP_STEP)
        .kernel(150, 230, step=0)  # ends after the host's step
        .kernel(240, 260, step=1)
        .collective(CollectiveKind.REDUCE_SCATTER, 225, 250, step=1)
        .build()
    )
    found = by_step(run, rank=0)
    assert list(found) == [0, 1]
    assert (found[0].span_ns, found[0].compute_ns, found[0].communication_ns, found[0].idle_ns) == (130, 80, 5, 50)
    assert (found[1].span_ns, found[1].compute_ns, found[1].exposed_ns, found[1].idle_ns) == (70, 20, 10, 40)
    assert breakdown(run, rank=0, step=1) == found[1]
    assert breakdown(run, rank=0, step=2) is None


def test_work_that_outlasts_the_next_step_is_counted_once(tmp_path):
    run = (
        device(tmp_path)
        .step(0, 0, 100)
        .step(1, 100, 200)
        .step(2, 200, 300)
        .kernel(50, 220)
        .kernel(150, 160, step=1)  # beside the one of step 0, and over before it
        .kernel(250, 260, step=2)
        .build()
    )
    found = by_step(run, rank=0)
    assert {step: (b.span_ns, b.compute_ns) for step, b in found.items()} == {0: (220, 170), 2: (80, 10)}


def test_a_pause_between_steps_belongs_to_neither(tmp_path):
    run = device(tmp_path).step(0, 0, 100).step(1, 500, 600).kernel(0, 90).kernel(500, 590, step=1).build()
    assert {step: b.idle_ns for step, b in by_step(run, rank=0).items()} == {0: 10, 1: 10}


def test_a_step_without_recorded_kernels_is_left_out(tmp_path):
    run = device(tmp_path).step(0, 0, 100).step(1, 100, 200).kernel(120, 130, step=1).build()
    assert list(by_step(run, rank=0)) == [1]


@settings(max_examples=25, deadline=None)
@given(
    works=st.lists(
        st.tuples(st.integers(0, 299), st.integers(1, 80), st.sampled_from(["gemm", "Memcpy DtoD", "ALL_GATHER"])),
        min_size=1,
        max_size=25,
    )
)
def test_parts_add_up_and_following_steps_add_up_to_the_whole(tmp_path_factory, works):
    b = device(tmp_path_factory.mktemp("run"))
    for step in range(3):
        b.step(step, 100 * step, 100 * step + 100).kernel(100 * step, 100 * step + 1, step=step)
    for start, length, name in works:
        if name == "ALL_GATHER":
            b.collective(CollectiveKind.ALL_GATHER, start, start + length, step=start // 100)
        else:
            b.kernel(start, start + length, name=name, step=start // 100)
    run = b.kernel(380, 400, step=2).build()
    whole, steps = breakdown(run, rank=0), by_step(run, rank=0).values()
    for found in (whole, *steps):
        assert found.compute_ns + found.exposed_ns + found.memory_ns + found.idle_ns == found.span_ns
        assert min(found.exposed_ns, found.overlapped_ns, found.memory_ns, found.idle_ns) >= 0
    for part in ("span_ns", "compute_ns", "communication_ns", "exposed_ns", "memory_ns", "idle_ns"):
        assert sum(getattr(found, part) for found in steps) == getattr(whole, part), part


def test_exposed_time_by_step_phase_and_direction(tmp_path):
    gather, reduce = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    run = (
        RunBuilder(path=tmp_path / "run")
        .step(0, 0, 100)
        .step(1, 100, 200)
        .kernel(5, 50)
        .kernel(120, 130, step=1)
        .collective(gather, -9, -1, step=SETUP_STEP, size_bytes=7)
        .collective(gather, 0, 10, size_bytes=64)
        .collective(gather, 40, 60, size_bytes=32)
        .collective(gather, 70, 75, phase=Phase.BACKWARD, size_bytes=64)
        .collective(reduce, 60, 80, phase=Phase.BACKWARD, size_bytes=None)
        .collective(reduce, 65, 70, phase=Phase.BACKWARD, size_bytes=8)
        .collective(reduce, 110, 125, step=1, phase=Phase.BACKWARD, size_bytes=16)
        .build()
    )
    table = exposed_by_step(run, rank=0)
    assert table.column_names == ["step", "phase", "kind", "count", "total_ns", "exposed_ns", "size_bytes"]
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, "FORWARD", "ALL_GATHER", 2, 30, 15, 96),
        (0, "BACKWARD", "REDUCE_SCATTER", 2, 25, 25, None),
        (0, "BACKWARD", "ALL_GATHER", 1, 5, 5, 64),
        (1, "BACKWARD", "REDUCE_SCATTER", 1, 15, 10, 16),
    ]


def test_exposed_time_is_null_without_compute_and_the_table_may_be_empty(tmp_path):
    run = RunBuilder(path=tmp_path / "a").collective(CollectiveKind.ALL_REDUCE, 0, 10).build()
    assert exposed_by_step(run, rank=0).column("exposed_ns").to_pylist() == [None]
    empty = RunBuilder(path=tmp_path / "b").alloc(at=0, size=1).build()
    assert exposed_by_step(empty, rank=0).num_rows == 0


@pytest.mark.parametrize("name", ["gpt-fsdp2-2ranks", "gpt-ddp-2ranks"])
def test_recorded_cpu_runs_add_up(name):
    from fsdp_profile.analysis.run import load_run

    run = load_run(Path(__file__).resolve().parents[3] / "sample_runs" / name)
    for rank in run.ranks:
        found = by_step(run, rank=rank)
        assert found
        for step in found.values():
            assert step.compute_ns + step.exposed_ns + step.memory_ns + step.idle_ns == step.span_ns
            assert step.communication_ns > 0
        table = exposed_by_step(run, rank=rank)
        assert set(table.column("step").to_pylist()) >= set(found)


def test_the_queue_is_read_from_the_tables(tmp_path):
    """One kernel and one all-gather of known launch, one copy launched before the recording: it waits from 0 on."""
    run = RunBuilder(path=tmp_path / "run").set(device_type="cuda").step(0, 0, 100)
    for name, launch, start, end in (("Memcpy DtoD", None, 4, 6), ("gemm", 10, 20, 30)):
        run.row("kernels", name=name, start_ns=start, end_ns=end, stream=7, step=0, launch_ns=launch)
    run.row("kernels", name="first", start_ns=0, end_ns=1, stream=7, step=0, launch_ns=0)
    run.collective("ALL_GATHER", 50, 60, launch_ns=45)
    assert [spans.tolist() for spans in queued_spans(run.build(), rank=0)] == [[0, 10, 45], [4, 20, 50]]
    found = breakdown(run.build(), rank=0)
    # Idle 1..4, 6..20, 30..50; of it nothing waits in 6..10 and 30..45.
    assert (found.idle_ns, found.host_bound_ns, found.host_bound_not_recorded) == (37, 19, None)
