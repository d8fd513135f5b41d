"""Synthetic runs of several ranks with known overlap, skew and late ranks: every answer is exact."""

from pathlib import Path

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank import by_kind, cross_rank
from fsdp_profile.analysis.collectives.stragglers import NeverJoined, Straggler
from fsdp_profile.analysis.collectives.waits import bus_factor
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import CollectiveKind, SpanKind

GATHER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE
US, MS = 1_000, 1_000_000


def run_of(path: Path, *ranks, world_size=None, **values):
    """A run whose ranks have collectives (kind, start, end), or (kind, start, end, fields)."""
    b = RunBuilder(path=path / "run")
    for rank, collectives in enumerate(ranks):
        b.rank(rank).unit("layers.0").unit("layers.1")
        for kind, start, end, *own in collectives:
            b.collective(kind, start, end, **{**values, "group_size": len(ranks), **(own[0] if own else {})})
    return b.set(world_size=world_size or len(ranks)).build()


def column(found, name):
    return found.collectives.column(name).to_pylist()


def test_wait_is_until_the_last_start_and_transfer_from_there(tmp_path):
    run = run_of(
        tmp_path,
        [(GATHER, 100 * US, 900 * US), (REDUCE, 1000 * US, 1500 * US)],
        [(GATHER, 700 * US, 900 * US), (REDUCE, 1200 * US, 1500 * US)],
        [(GATHER, 300 * US, 900 * US), (REDUCE, 1300 * US, 1500 * US)],
        size_bytes=6_000_000,
    )
    found = cross_rank(run)
    assert (found.num_matched, found.num_unmatched, found.unmatched) == (2, 0, {})
    assert column(found, "late_rank") == [1, 2]
    assert found.calls.column("wait_ns").to_pylist() == [600 * US, 0, 400 * US, 300 * US, 100 * US, 0]
    assert column(found, "wait_ns") == [1000 * US, 400 * US]
    assert column(found, "late_ns") == [400 * US, 100 * US]
    assert column(found, "transfer_ns") == [200 * US, 200 * US]
    assert column(found, "algbw_bytes_per_s") == [3e10, 3e10]
    assert column(found, "busbw_bytes_per_s") == [3e10 * (2 / 3), 3e10 * (4 / 3)]  # (n-1)/n and 2(n-1)/n
    assert (found.clock.offset_ns, found.clock.residual_ns, found.clock.reason) == ({0: 0, 1: 0, 2: 0}, 0, "")
    kinds = by_kind(found)
    assert (kinds["ALL_GATHER"].wait_ns, kinds["ALL_GATHER"].transfer_ns) == (1000 * US, 200 * US)
    assert kinds["ALL_REDUCE"].busbw_bytes_per_s == 3e10 * (4 / 3)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (CollectiveKind.ALL_REDUCE, 1.75), (CollectiveKind.ALL_GATHER, 0.875), (CollectiveKind.REDUCE_SCATTER, 0.875),
        (CollectiveKind.ALL_TO_ALL, 0.875), (CollectiveKind.BROADCAST, 1.0), (CollectiveKind.REDUCE, 1.0),
    ],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(kind, factor):
    assert bus_factor(kind.value, 8) == factor


def test_no_bandwidth_without_a_size_or_a_transfer(tmp_path):
    both = [(GATHER, 0, 5 * US), (REDUCE, 10 * US, 20 * US, {"size_bytes": None})]
    late = [(GATHER, 5 * US, 5 * US), (REDUCE, 10 * US, 20 * US, {"size_bytes": None})]
    found = cross_rank(run_of(tmp_path, both, late, size_bytes=8))
    assert column(found, "transfer_ns") == [0, 10 * US]
    assert column(found, "busbw_bytes_per_s") == [None, None]
    assert column(found, "late_rank") == [1, None]  # both came at once to the second
    assert by_kind(found)["ALL_REDUCE"].busbw_bytes_per_s is None


def test_a_clock_that_is_ahead_is_found_and_taken_off(tmp_path):
    ahead = 3 * MS
    times = [(GATHER, i * MS, i * MS + 200 * US) for i in range(5)]
    others = [(kind, start + ahead + 50 * US, end + ahead) for kind, start, end in times]
    found = cross_rank(run_of(tmp_path, times, others))
    assert found.clock.offset_ns == {0: 0, 1: ahead}
    assert found.clock.residual_ns == 0
    assert found.num_matched == 5
    assert column(found, "late_rank") == [1] * 5
    assert column(found, "wait_ns") == [50 * US] * 5
    assert found.calls.column("end_ns").to_pylist()[:2] == [200 * US, 200 * US]


def test_offsets_reach_ranks_that_share_no_group(tmp_path):
    """Rank 2 meets rank 0 in one group only, rank 3 only ranks 1 and 2: 0 -> 1, 2 -> 3."""
    b = RunBuilder(path=tmp_path / "run").set(world_size=4)
    ahead = {0: 0, 1: 5 * MS, 2: -7 * MS, 3: 11 * MS}
    for rank in range(4):
        b.rank(rank)
        for step in range(4):
            for name, ranks, at in (
                ("row0", (0, 1), 0),
                ("row1", (2, 3), 0),
                ("col0", (0, 2), 50),
                ("col1", (1, 3), 50),
            ):
                if rank in ranks:
                    start = 100 * MS + step * MS + at * US + ahead[rank]
                    b.collective(GATHER, start, start + 40 * US, group=name, group_size=2)
    found = cross_rank(b.build())
    assert found.clock.offset_ns == ahead
    assert (found.num_matched, found.num_unmatched) == (16, 0)
    assert set(column(found, "wait_ns")) == {0}


def test_a_small_difference_of_the_ends_is_no_other_clock(tmp_path):
    times = [(GATHER, i * MS, i * MS + 200 * US) for i in range(4)]
    found = cross_rank(run_of(tmp_path, times, [(k, s + 3 * US, e + 3 * US) for k, s, e in times]))
    assert found.clock.offset_ns == {0: 0, 1: 0}
    assert column(found, "wait_ns") == [3 * US] * 4
    assert column(found, "transfer_ns") == [200 * US] * 4


def test_ends_that_fit_no_offset_are_refused(tmp_path):
    first = [(GATHER, i * MS, i * MS + 10 * US) for i in range(6)]
    second = [(GATHER, 7 * i * MS + 500 * US, 7 * i * MS + 510 * US) for i in range(6)]
    found = cross_rank(run_of(tmp_path, first, second))
    assert found.clock.offset_ns is None
    assert found.clock.residual_ns > 10 * US
    assert "only 0 of 6 collectives overlap in time" in found.clock.reason
    assert "more than the collectives last (10,000 ns)" in found.clock.reason
    assert (found.num_matched, found.unmatched) == (0, {"the ranks' calls do not overlap in time": 6})
    assert found.stragglers == ()


def test_ranks_of_one_host_have_one_clock(tmp_path):
    """Rank 1 is always done 3 ms later than rank 0; on two hosts that would be taken for the clocks."""
    first = [(GATHER, 10 * i * MS, (10 * i + 5) * MS) for i in range(4)]
    second = [(GATHER, (10 * i + 4) * MS, (10 * i + 8) * MS) for i in range(4)]

    def hosts(*names):
        b = RunBuilder(path=tmp_path / "-".join(names))
        b.set(ranks=[RankRecord(rank=rank, host=name) for rank, name in enumerate(names)])
        for rank, calls in enumerate((first, second)):
            b.rank(rank)
            for kind, start, end in calls:
                b.collective(kind, start, end)
        return cross_rank(b.build())

    same, other = hosts("node", "node"), hosts("node-a", "node-b")
    assert (same.clock.offset_ns, same.clock.residual_ns, column(same, "wait_ns")) == (
        {0: 0, 1: 0},
        3 * MS,
        [4 * MS] * 4,
    )
    assert (other.clock.offset_ns, other.clock.residual_ns, column(other, "wait_ns")) == (
        {0: 0, 1: 3 * MS},
        0,
        [MS] * 4,
    )


def test_waits_in_a_pause_of_the_capture_are_nobodys_fault(tmp_path):
    """After step 0 rank 1 writes until 900: it comes at 950 to what rank 0 waits for since 150."""
    b = RunBuilder(path=tmp_path / "run")
    for rank, resumed in enumerate((120, 900)):
        b.rank(rank).step(0, 0, 100).step(1, resumed, 2000)
        b.collective(GATHER, 10 + 20 * rank, 90).collective(GATHER, resumed + 30 + 20 * rank, 1000, step=1)
    found = cross_rank(b.build())
    assert (column(found, "paused_wait_ns"), found.num_after_pause, found.paused_wait_ns) == ([0, 750], 1, 750)
    assert column(found, "wait_ns") == [20, 800]
    # 750 of the 800 rank 1 was writing; the 50 after it are its own.
    assert [(s.rank, s.times_last, s.wait_caused_ns) for s in found.stragglers] == [(1, 2, 70)]
    assert by_kind(found)["ALL_GATHER"].wait_ns == 70
    # What others recorded has no pauses: between two steps the job itself was running.
    imported = RunBuilder(path=tmp_path / "imported").set(extra={"imported": []})
    for rank in (0, 1):
        imported.rank(rank).step(0, 0, 100).step(1, 120, 2000).collective(GATHER, 90 + 40 * rank, 1000)
    assert cross_rank(imported.build()).stragglers[0].wait_caused_ns == 40


def test_one_collective_fits_any_offset_and_is_taken_on_the_ranks_own_clocks(tmp_path):
    found = cross_rank(run_of(tmp_path, [(GATHER, 0, 9)], [(GATHER, 4, 9)]))
    assert (found.clock.offset_ns, found.num_matched) == (None, 1)
    assert found.clock.reason == "there is only one collective, which fits any offset"
    apart = cross_rank(run_of(tmp_path / "apart", [(GATHER, 0, 9)], [(GATHER, 10, 19)]))
    assert (apart.clock.offset_ns, apart.num_matched) == (None, 0)


def test_one_rank_has_nothing_to_align_on(tmp_path):
    found = cross_rank(run_of(tmp_path, [(GATHER, 0, 9)]))
    assert found.clock.reason == "no collective was recorded by all of its ranks"
    assert found.unmatched == {"recorded on one of its ranks only": 1}
    assert found.never_joined == ()


def test_a_run_without_collectives(tmp_path):
    found = cross_rank(RunBuilder(path=tmp_path / "run").rank(0).rank(1).build())
    assert (found.num_matched, found.num_unmatched, by_kind(found), found.stragglers) == (0, 0, {}, ())


@pytest.mark.parametrize("fields", [{"size_bytes": 16}, {"dtype": "bfloat16"}])
def test_calls_that_disagree_are_not_one_collective(tmp_path, fields):
    told = {"size_bytes": 8, "dtype": "float32"}
    good = [(GATHER, i * US, i * US + 9, told) for i in range(3)]
    other = [*good[:2], (GATHER, 2 * US, 2 * US + 9, {**told, **fields})]
    found = cross_rank(run_of(tmp_path, good, other))
    assert (found.num_matched, found.unmatched) == (2, {"kind, size or dtype differ between the ranks": 1})


def test_what_is_not_told_contradicts_nothing_and_all_to_alls_may_be_uneven(tmp_path):
    first = [
        (GATHER, 0, 9, {"size_bytes": 8, "dtype": "float32"}),
        (CollectiveKind.ALL_TO_ALL, 20, 29, {"size_bytes": 8}),
    ]
    second = [
        (GATHER, 0, 9, {"size_bytes": None, "dtype": ""}),
        (CollectiveKind.ALL_TO_ALL, 20, 29, {"size_bytes": 24}),
    ]
    found = cross_rank(run_of(tmp_path, first, second))
    assert (column(found, "size_bytes"), column(found, "dtype")[0]) == ([8, 24], "float32")


def test_sequence_wins_over_order(tmp_path):
    """Rank 1 lost its first collective: by order everything would be shifted by one."""
    calls = [(GATHER, i * MS, i * MS + 500 * US, {"sequence": 7 + i, "group": "0"}) for i in range(4)]
    found = cross_rank(run_of(tmp_path, calls, calls[1:]))
    assert column(found, "index") == [8, 9, 10]
    assert column(found, "wait_ns") == [0, 0, 0]
    assert found.never_joined == ()  # it was over on rank 0, so rank 1 was in it
    assert found.unmatched == {"some of its ranks did not record its step": 1}


def test_order_starts_anew_with_every_step(tmp_path):
    """Without sequence, a collective lost in step 0 does not shift those of step 1."""
    calls = [(GATHER, i * MS, i * MS + 500 * US, {"step": i // 2}) for i in range(4)]
    b = RunBuilder(path=tmp_path / "run")
    for rank, mine in enumerate((calls, calls[1:])):
        b.rank(rank).step(0, 0, 2 * MS).step(1, 2 * MS, 4 * MS)
        for kind, start, end, fields in mine:
            b.collective(kind, start, end, **fields)
    found = cross_rank(b.build())
    assert (found.num_matched, column(found, "step")) == (2, [1, 1])


def test_two_groups_on_two_meshes_are_never_mixed(tmp_path):
    """Data-parallel group "5" is ranks 0 and 2, "6" is 1 and 3; tensor-parallel "7" is 0 and 1, "8" is 2 and 3."""
    b = RunBuilder(path=tmp_path / "run").set(world_size=4)
    groups = {"5": ((0, 2), "mesh_dp"), "6": ((1, 3), "mesh_dp"), "7": ((0, 1), "mesh_tp"), "8": ((2, 3), "mesh_tp")}
    late = {0: 0, 1: 40, 2: 10, 3: 30}
    for rank in range(4):
        b.rank(rank)
        for name, (ranks, description) in groups.items():
            if rank in ranks:
                kind, at = (GATHER, 1000) if description == "mesh_dp" else (REDUCE, 2000)
                fields = {"group": name, "group_description": description, "group_size": 2, "size_bytes": 40}
                b.collective(kind, at + late[rank], at + 100, **fields)
    found = cross_rank(b.build())
    pairs = {}
    for row in found.calls.to_pylist():
        pairs.setdefault(row["collective"], []).append(row["rank"])
    which = dict(zip(column(found, "collective"), column(found, "group"), strict=True))
    assert {which[c]: tuple(ranks) for c, ranks in pairs.items()} == {n: ranks for n, (ranks, _) in groups.items()}
    assert dict(zip(column(found, "group"), column(found, "wait_ns"), strict=True)) == {
        "5": 10,
        "6": 10,
        "7": 40,
        "8": 20,
    }
    assert dict(zip(column(found, "group"), column(found, "late_rank"), strict=True)) == {
        "5": 2,
        "6": 1,
        "7": 1,
        "8": 3,
    }


def test_groups_of_one_name_are_told_apart_where_the_recording_lists_their_ranks(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=4)
    listed = [{"name": "dp", "description": "mesh_dp", "ranks": ranks} for ranks in ([0, 2], [1, 3])]
    b.set(extra={"process_groups": listed})
    for rank in range(4):
        b.rank(rank).collective(GATHER, 10 * rank, 100, group="dp", group_size=2)
    found = cross_rank(b.build())
    assert (found.num_matched, column(found, "wait_ns"), column(found, "late_rank")) == (2, [20, 20], [2, 3])
    assert column(found, "group_description") == ["mesh_dp", "mesh_dp"]


def test_a_group_whose_ranks_are_not_known_is_left_alone(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=4)
    for rank in range(4):
        b.rank(rank).collective(GATHER, 0, 9, group_size=2)
        b.collective(REDUCE, 20, 29, group="same", group_size=2)
    found = cross_rank(b.build())
    assert (found.num_matched, found.unmatched) == (0, {"the ranks of its group are not known": 2})
    assert found.never_joined == ()


def test_a_rank_that_stops_early_is_named_with_what_it_never_joined(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=3)
    for rank in range(3):
        b.rank(rank).unit("").unit("layers.7").step(0, 0, 300 if rank < 2 else 190)
        for number in range(3 if rank < 2 else 2):
            b.collective(GATHER, 100 * number, 100 * number + 50, unit=1 if number == 2 else 0, group="0", group_size=3)
    found = cross_rank(b.build())
    assert found.never_joined == (
        NeverJoined(
            rank=2, kind="ALL_GATHER", group="0", group_description="", index=2, step=0, unit="layers.7", num_more=0,
            recording_ended=True,
        ),
    )  # fmt: skip
    assert (found.num_matched, found.unmatched) == (2, {"some of its ranks never joined": 1})


def test_what_is_over_on_one_rank_had_all_ranks_in_it(tmp_path):
    """Rank 1's recording is lost from collective 2 on; rank 0 finished 2 and 3, and ended in 4 with an error."""
    b = RunBuilder(path=tmp_path / "run").set(world_size=2)
    for rank, calls in enumerate((5, 2)):
        b.rank(rank).unit("a").unit("b").step(0, 0, 500 if rank == 0 else 190)
        for number in range(calls):
            b.collective(GATHER, 100 * number, 100 * number + 50, unit=number % 2, group="0", group_size=2)
    found = cross_rank(b.build())
    [lost] = found.never_joined
    assert (lost.rank, lost.index, lost.unit, lost.num_more) == (1, 4, "a", 0)
    assert found.unmatched == {"some of its ranks never joined": 1, "some of its ranks did not record its step": 2}
    # Compute after the last one: it is over too.
    assert cross_rank(b.rank(0).kernel(460, 470).build()).never_joined == ()


def test_ranks_that_recorded_other_steps_are_not_missed(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=2)
    b.rank(0).step(550, 0, 100).collective(GATHER, 0, 9, step=550)
    b.rank(1).step(1009, 0, 100).collective(GATHER, 0, 9, step=1009)
    found = cross_rank(b.build())
    assert (found.num_matched, found.never_joined) == (0, ())
    assert found.unmatched == {"some of its ranks did not record its step": 2}


def test_stragglers_are_ranked_by_the_wait_they_caused_and_say_what_they_were_busy_with(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=3)
    starts = [(0, 50, 10), (100, 150, 120), (200, 210, 260)]
    for rank in range(3):
        b.rank(rank).unit("").unit("layers.0").unit("layers.1")
        for step in range(3):
            b.step(step, 100 * step, 100 * step + 99)
            b.collective(GATHER, starts[step][rank], 100 * step + 80, unit=1, step=step, group_size=3)
        if rank == 1:
            b.span(0, SpanKind.FORWARD, 0, 99).span(2, SpanKind.FORWARD, 20, 49)
            b.span(0, SpanKind.FORWARD, 100, 199, step=1).span(2, SpanKind.FORWARD, 125, 149, step=1)
    found = cross_rank(b.build())
    assert found.stragglers == (
        Straggler(
            rank=1, times_last=2, wait_caused_ns=90 + 80, worst_unit="layers.1", worst_unit_late_ns=40 + 30,
            worst_step=0, worst_step_late_ns=40,
        ),
        Straggler(
            rank=2, times_last=1, wait_caused_ns=110, worst_unit=None, worst_unit_late_ns=50, worst_step=2,
            worst_step_late_ns=50,
        ),
    )  # fmt: skip
    assert column(found, "late_unit") == ["layers.1", "layers.1", None]
    assert column(found, "unit") == ["layers.0"] * 3


def test_set_up_is_not_looked_at(tmp_path):
    calls = [(GATHER, 0, 9, {"step": -1}), (GATHER, 20, 29)]
    assert cross_rank(run_of(tmp_path, calls, calls)).num_matched == 1
