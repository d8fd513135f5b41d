import pytest
from analysis.collectives.several_ranks import GATHER, REDUCE, column, run_of
from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.stragglers import NeverJoined
from fsdp_profile.core.schema import CollectiveKind

US, MS = 1_000, 1_000_000


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
