from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank_summary import cross_rank_summary
from fsdp_profile.analysis.ranks.grid import Measure, rank_grid, values_of
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import CollectiveKind


def run_of(hosts):
    found = RunBuilder("grid")
    for rank in range(len(hosts)):
        found.rank(rank).step(0, 0, 9).step(1, 9, 20 + rank)
        found.alloc(at=1, size=10 + rank).alloc(at=2, size=rank + 1, category=Category.UNKNOWN)
        start = 8 if rank == 2 else 4
        found.collective(
            CollectiveKind.ALL_GATHER, start, 9, size_bytes=4, group="0", sequence=1, group_size=len(hosts)
        )
    return found.set(ranks=[RankRecord(rank=r, host=host) for r, host in enumerate(hosts)]).build()


def test_ranks_stand_in_a_column_of_their_node():
    grid = rank_grid(rank_summaries(run_of(["b", "b", "a", "b"])))
    assert (grid.columns, grid.ranks, grid.are_hosts, grid.num_rows) == (("b", "a"), ((0, 1, 3), (2,)), True, 3)


def test_ranks_of_one_host_stand_by_eights():
    grid = rank_grid(rank_summaries(run_of(["a"] * 10)))
    assert (grid.columns, grid.ranks) == (("0 to 7", "8 to 9"), (tuple(range(8)), (8, 9)))
    assert not grid.are_hosts


def test_every_measure_is_the_ranks_own():
    run = run_of(["a", "a", "a"])
    ranks, matches = rank_summaries(run), cross_rank_summary(run)
    found = {measure: list(values_of(ranks, matches, measure).values()) for measure in Measure}
    assert found == {
        Measure.PEAK: [11, 13, 15],
        Measure.RESERVED: [None, None, None],
        Measure.UNKNOWN: [1, 2, 3],
        Measure.STEP: [11, 12, 13],
        Measure.WAITED: [4, 4, 0],
        Measure.CAUSED: [0, 0, 8],
    }


def test_without_matched_collectives_waits_are_not_recorded():
    run = RunBuilder("none").rank(0).alloc(at=1, size=4).rank(1).alloc(at=1, size=4).build()
    ranks = rank_summaries(run)
    assert values_of(ranks, cross_rank_summary(run), Measure.WAITED) == {0: None, 1: None}
    assert values_of(ranks, None, Measure.CAUSED) == {0: None, 1: None}
