"""The sentence about late ranks is one value; what each place shows of it is rendered from there."""

from fsdp_profile.analysis.collectives.stragglers import NeverJoined, Straggler
from fsdp_profile.present.stragglers import late_rank, never_joined, stragglers_table

MS = 1_000_000


def straggler(rank: int, *, times: int, wait_ms: int, unit: str | None = "layers.2") -> Straggler:
    return Straggler(
        rank=rank, times_last=times, wait_caused_ns=wait_ms * MS, worst_unit=unit, worst_unit_late_ns=MS, worst_step=3,
        worst_step_late_ns=2 * MS,
    )  # fmt: skip


def test_one_late_rank_is_named_with_its_slowest_unit():
    found = [straggler(0, times=31, wait_ms=9), straggler(1, times=25, wait_ms=4)]
    assert late_rank(found, 56).text == (
        "Rank 0 came last in 31 of 56 matched collectives, and the other ranks waited 9.00 ms for it in total; its "
        "slowest unit was layers.2."
    )


def test_two_ranks_of_about_the_same_cost_are_both_named_and_none_stands_out():
    found = [straggler(0, times=31, wait_ms=9), straggler(1, times=25, wait_ms=5)]
    assert late_rank(found, 56).text == (
        "No rank stands out in 56 matched collectives: rank 0 came last in 31 (9.00 ms of waiting); rank 1 came last "
        "in 25 (5.00 ms of waiting)."
    )


def test_no_late_rank_and_no_match_are_different_answers():
    assert late_rank([], 56).text == "No rank was late: all ranks reached each of the 56 matched collectives together."
    assert late_rank([], 0).text == "Not recorded: no collective could be matched between the ranks."


def test_late_ranks_are_rows_with_units_of_measure():
    found = stragglers_table([straggler(1, times=2, wait_ms=4, unit=None)], num_matched=7)
    assert [one.label for one in found.columns] == [
        "rank", "times last", "wait caused", "slowest unit", "late in that unit", "worst step", "late in that step"
    ]  # fmt: skip
    assert found.rows() == [("1", "2", "4.00 ms", "(no active unit)", "1.00 ms", "3", "2.00 ms")]
    assert found.note == "in 7 matched collectives"


def test_a_collective_that_a_rank_never_joined_is_named_by_its_label():
    lost = NeverJoined(rank=2, kind="REDUCE_SCATTER", group="4", group_description="mesh_shard", index=9, step=1,
                       unit="", num_more=3, recording_ended=True)  # fmt: skip
    assert [one.text for one in never_joined([lost])] == [
        "Rank 2 never joined reduce-scatter #9 of (root) (step 1, group 4 mesh_shard), nor 3 after it; its recording "
        "ends before that."
    ]
