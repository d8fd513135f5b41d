"""A real gloo run in which one rank sleeps in one unit: the analysis names rank, unit and how long."""

from collections.abc import Callable
from pathlib import Path

from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.run import Run, load_run

MS = 1_000_000


def test_a_rank_that_sleeps_in_one_unit_is_named(tmp_path: Path) -> None:
    script = str(SCRIPTS / "sleepy_fsdp2.py")
    done = fsdp_profile("run", "-n", "2", "-o", str(tmp_path / "run"), script, "--rank", "1", "--unit", "1")
    assert done.returncode == 0, done.stderr
    found = cross_rank(load_run(tmp_path / "run"))
    # 12 a step: 4 all-gathers in forward and 4 in backward, 4 reduce-scatters. A rank may be so late that gloo had
    # let the others go, so not all need overlap.
    assert found.num_matched + found.num_unmatched == 36
    assert found.num_matched >= 18
    assert found.never_joined == ()
    worst = found.stragglers[0]
    assert (worst.rank, worst.worst_unit) == (1, "layers.1")
    assert worst.worst_unit_late_ns >= 2 * 40 * MS
    late = sorted(
        row["late_ns"]
        for row in found.collectives.to_pylist()
        if (row["late_rank"], row["late_unit"], row["kind"]) == (1, "layers.1", "ALL_GATHER")
        and row["unit"] == "layers.2"
    )
    # Once a step, at the all-gather of the unit after it. No upper bound: the machine may be busy with other things.
    assert len(late) >= 2
    assert late[-1] >= 40 * MS


def test_groups_of_a_real_mesh_are_matched_apart(recorded: Callable[[str], Run]) -> None:
    run = recorded("hsdp")
    found = cross_rank(run)
    ranks: dict[str, set[int]] = {}
    group_of = dict(zip(*(found.collectives.column(n).to_pylist() for n in ("collective", "group")), strict=True))
    for row in found.calls.to_pylist():
        ranks.setdefault(group_of[row["collective"]], set()).add(row["rank"])
    assert sorted(map(sorted, ranks.values())) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert found.num_matched >= 0.5 * (found.num_matched + found.num_unmatched)
