from analysis.collectives.several_ranks import GATHER, column, run_of
from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank import by_kind, cross_rank
from fsdp_profile.core.manifest import RankRecord

US, MS = 1_000, 1_000_000


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
    # What others recorded has no pauses: between two steps the job itself was at work.
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
