"""Calls listed and drawn: every number is that of collectives.py and cross_rank.py."""

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank import by_kind, cross_rank
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.collectives.timeline import (
    BY_GROUP,
    BY_KIND,
    BY_RANK,
    BY_UNIT,
    CallTotal,
    RankWait,
    StepTotal,
    call_totals,
    collective_calls,
    rank_waits,
    step_calls,
    step_totals,
)
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.layout import packaged
from fsdp_profile.core.schema import CollectiveKind, Phase

GATHER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
MS = 1_000_000
SAMPLES = ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks", "gpt-hsdp-4ranks")


def one_rank():
    """Step 0 of 100: a gather of 20 to 40 with compute from 10 to 25 and 30 to 34, a reduction of 50 to 60."""
    return (
        RunBuilder()
        .step(0, 0, 100)
        .unit("")
        .unit("layers.0")
        .kernel(10, 25)
        .kernel(30, 34)
        .collective(GATHER, 20, 40, unit=1, size_bytes=8, dtype="float32", sequence=7, group="0")
        .collective(REDUCE, 50, 60, size_bytes=4, phase=Phase.BACKWARD)
    )


def two_ranks():
    """Rank 1 comes 3 ms after rank 0 to a gather that ends at 10 ms, and at once with it to a reduction."""
    run = RunBuilder()
    for rank, start in ((0, 1 * MS), (1, 4 * MS)):
        run.rank(rank).step(0, 0, 30 * MS).kernel(2 * MS, 3 * MS)
        run.collective(GATHER, start, 10 * MS, size_bytes=6_000_000)
        run.collective(REDUCE, 20 * MS, 22 * MS, size_bytes=2_000_000)
    return run


def calls_of(run, *, rank=0):
    return collective_calls(run, cross_rank(run), rank=rank)


def test_a_call_has_its_unit_group_and_exposed_time():
    first, second = calls_of(one_rank().build()).to_pylist()
    assert (first["kind"], first["unit"], first["sequence"], first["group"]) == ("ALL_GATHER", "layers.0", 7, "0")
    assert (first["start_ns"], first["end_ns"], first["exposed_ns"]) == (20, 40, 11)
    assert (second["unit"], second["phase"], second["exposed_ns"], second["sequence"]) == (None, "BACKWARD", 10, None)
    assert (first["collective"], first["wait_ns"], first["busbw_bytes_per_s"]) == (None, None, None)


def test_the_exposed_stretches_are_what_compute_leaves_open():
    run = one_rank().build()
    found = step_calls(run, cross_rank(run), calls_of(run), rank=0, step=0)
    assert found.exposed.to_pydict() == {"call": [0, 0, 1], "start_ns": [25, 34, 50], "end_ns": [30, 40, 60]}
    assert (found.start_ns, found.end_ns, [span.phase for span in found.phases]) == (0, 100, ["FORWARD"])


def test_without_compute_nothing_is_said_to_be_exposed():
    run = RunBuilder().step(0, 0, 9).collective(GATHER, 2, 5).build()
    calls = calls_of(run)
    assert calls.column("exposed_ns").to_pylist() == [None]
    assert step_calls(run, cross_rank(run), calls, rank=0, step=0).exposed is None
    assert step_totals(run, rank=0) == [StepTotal(step=0, total_ns=3, exposed_ns=None)]
    (total,) = call_totals(calls, BY_KIND)
    assert (total.total_ns, total.exposed_ns, total.overlapped_ns) == (3, None, None)


def test_totals_by_kind_group_and_unit():
    calls = calls_of(one_rank().build())
    gather = {"count": 1, "size_bytes": 8, "total_ns": 20, "exposed_ns": 11}
    reduce = {"count": 1, "size_bytes": 4, "total_ns": 10, "exposed_ns": 10}
    unknown = {"algbw_bytes_per_s": None, "busbw_bytes_per_s": None}
    for by, first, second in (
        (BY_KIND, ("ALL_GATHER",), ("REDUCE_SCATTER",)),
        (BY_GROUP, ("0", "", 2), ("", "", 2)),
        (BY_UNIT, ("layers.0",), (None,)),
    ):
        assert call_totals(calls, by) == [
            CallTotal(key=first, **gather, **unknown),
            CallTotal(key=second, **reduce, **unknown),
        ]


def test_bytes_of_which_a_part_is_unknown_are_unknown():
    run = RunBuilder().collective(GATHER, 1, 2, size_bytes=None).collective(GATHER, 3, 4, size_bytes=5).build()
    assert [total.size_bytes for total in call_totals(calls_of(run), BY_KIND)] == [None]


def test_a_step_counts_calls_at_the_same_time_once():
    run = (
        RunBuilder()
        .step(0, 0, 50)
        .step(1, 50, 90)
        .kernel(0, 12)
        .collective(GATHER, 10, 20)
        .collective(REDUCE, 15, 30)
        .collective(GATHER, 60, 61, step=1)
        .build()
    )
    assert step_totals(run, rank=0) == [
        StepTotal(step=0, total_ns=20, exposed_ns=18),
        StepTotal(step=1, total_ns=1, exposed_ns=1),
    ]


def test_matched_calls_have_wait_transfer_and_bandwidth():
    calls = calls_of(two_ranks().build(), rank=None).to_pylist()
    gathers = {call["rank"]: call for call in calls if call["kind"] == "ALL_GATHER"}
    assert [gathers[rank]["wait_ns"] for rank in (0, 1)] == [3 * MS, 0]
    assert {call["transfer_ns"] for call in gathers.values()} == {6 * MS}
    assert {call["algbw_bytes_per_s"] for call in gathers.values()} == {1e9}
    assert {call["busbw_bytes_per_s"] for call in gathers.values()} == {0.5e9}


def test_waits_of_ranks_leave_our_own_pauses_out():
    run = two_ranks()
    for rank, start in ((0, 51 * MS), (1, 55 * MS)):  # rank 1 was written to disk until 54 ms
        run.rank(rank).step(1, 54 * MS if rank else 50 * MS, 80 * MS)
        run.collective(GATHER, start, 60 * MS, step=1)
    assert rank_waits(cross_rank(run.build())) == [
        RankWait(rank=0, count=3, wait_ns=4 * MS, transfer_ns=13 * MS),
        RankWait(rank=1, count=3, wait_ns=0, transfer_ns=13 * MS),
    ]


def test_ranks_with_clocks_apart_are_drawn_on_one():
    run = RunBuilder()
    for rank, ahead in ((0, 0), (1, 500 * MS)):
        run.rank(rank).step(0, ahead, ahead + 100 * MS).kernel(ahead + 12 * MS, ahead + 13 * MS)
        for start in (10, 30, 50):
            run.collective(GATHER, ahead + start * MS, ahead + (start + 5) * MS, size_bytes=100)
    run = run.build()
    matches = cross_rank(run)
    calls = collective_calls(run, matches, rank=None)
    assert calls.column("start_ns").to_pylist() == [t * MS for t in (10, 10, 30, 30, 50, 50)]
    found = step_calls(run, matches, calls, rank=None, step=0)
    assert (found.start_ns, found.end_ns, found.phases) == (0, 100 * MS, ())
    assert [t // MS for t in found.exposed.column("start_ns").to_pylist()[:4]] == [10, 13, 30, 50]
    assert found.exposed.num_rows == 8
    assert collective_calls(run, matches, rank=1).column("start_ns").to_pylist()[0] == 510 * MS


def test_calls_that_their_times_do_not_tell_apart_are_not_matched():
    run = RunBuilder()
    for rank in (0, 1):
        run.rank(rank).step(0, 0, 100)
        run.collective(GATHER, 10, 20).collective(GATHER, 10, 20).collective(GATHER, 30, 40)
    found = calls_of(run.build()).column("collective").to_pylist()
    assert found[:2] == [None, None]
    assert found[2] is not None


def test_a_run_without_calls_has_an_empty_table():
    run = RunBuilder().step(0, 0, 9).kernel(1, 2).build()
    calls = calls_of(run)
    assert (calls.num_rows, call_totals(calls, BY_KIND), step_totals(run, rank=0)) == (0, [], [])


def test_a_step_that_is_not_there_is_refused():
    run = one_rank().build()
    with pytest.raises(InputError, match="no step 4"):
        step_calls(run, cross_rank(run), calls_of(run), rank=0, step=4)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_runs_agree_with_the_summary_and_across(name):
    run = load_run(packaged("sample_runs") / name)
    matches = cross_rank(run)
    for rank in run.ranks:
        summary = collective_summary(run, rank=rank)
        calls = collective_calls(run, matches, rank=rank)
        kinds = {total.key[0]: total for total in call_totals(calls, BY_KIND)}
        assert {kind: (t.count, t.size_bytes, t.total_ns, t.exposed_ns) for kind, t in kinds.items()} == {
            kind: (t.count, t.size_bytes, t.total_ns, t.exposed_ns) for kind, t in summary.by_kind.items()
        }
        steps = step_totals(run, rank=rank)
        assert sum(total.total_ns for total in steps) == summary.total_ns
        assert sum(total.exposed_ns for total in steps) == summary.exposed_ns
        for total in steps:
            found = step_calls(run, matches, calls, rank=rank, step=total.step)
            stretches = found.exposed.column("end_ns").to_numpy() - found.exposed.column("start_ns").to_numpy()
            assert stretches.sum() == sum(found.calls.column("exposed_ns").to_pylist())
    every = collective_calls(run, matches, rank=None)
    bandwidths = {total.key[0]: total.busbw_bytes_per_s for total in call_totals(every, BY_KIND)}
    assert bandwidths == {kind: total.busbw_bytes_per_s for kind, total in by_kind(matches).items()}
    assert sum(wait.wait_ns for wait in rank_waits(matches)) == sum(t.wait_ns for t in by_kind(matches).values())
    assert sorted(total.key[0] for total in call_totals(every, BY_RANK)) == list(run.ranks)
