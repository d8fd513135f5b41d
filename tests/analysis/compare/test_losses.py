"""Losses of two runs side by side: equal to rounding, or not and by how much."""

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.compare.losses import TOLERANCE_FULL, TOLERANCE_REDUCED, agreement
from fsdp_profile.analysis.run import Run

Losses = dict[tuple[int, int], float | None]


def run_of(tmp_path, name: str, *ranks: Losses, dtype: str = "float32") -> Run:
    run = RunBuilder(name, path=tmp_path / name)
    for rank, losses in enumerate(ranks):
        run.rank(rank).unit("", compute_dtype=dtype)
        for (step, micro_step), loss in losses.items():
            run.row("losses", step=step, micro_step=micro_step, loss=loss)
    return run.build()


def test_the_largest_difference_of_a_step_is_over_ranks_and_micro_steps(tmp_path):
    base = run_of(tmp_path, "a", {(0, 0): 4.0, (0, 1): 2.0, (1, 0): 1.0}, {(0, 0): 8.0, (0, 1): 2.0, (1, 0): 1.0})
    mine = run_of(tmp_path, "b", {(0, 0): 4.0, (0, 1): 2.5, (1, 0): 1.0}, {(0, 0): 9.0, (0, 1): 2.0, (1, 0): 1.0})
    found = agreement(mine, base)
    assert found is not None
    assert [(s.step, s.loss, s.difference, s.ratio) for s in found.steps] == [(0, 4.0, 1.0, 0.25), (1, 1.0, 0.0, 0.0)]
    assert (found.num_losses, found.worst.step, found.is_equal) == (6, 0, False)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "is_equal"),
    [("float32", TOLERANCE_FULL, False), ("bfloat16", TOLERANCE_REDUCED, True)],
)
def test_what_counts_as_rounding_depends_on_the_compute_dtype(tmp_path, dtype, tolerance, is_equal):
    base = run_of(tmp_path, "a", {(0, 0): 1.0})
    found = agreement(run_of(tmp_path, "b", {(0, 0): 1.001}, dtype=dtype), base)
    assert found is not None
    assert (found.tolerance_ratio, found.is_equal) == (tolerance, is_equal)


def test_only_steps_in_both_are_compared(tmp_path):
    base = run_of(tmp_path, "a", {(0, 0): 1.0, (1, 0): 1.0})
    found = agreement(run_of(tmp_path, "b", {(1, 0): 1.0, (2, 0): 9.0}), base)
    assert found is not None
    assert [s.step for s in found.steps] == [1]


def test_not_finite_in_both_is_equal_and_in_one_is_not(tmp_path):
    base = run_of(tmp_path, "a", {(0, 0): None, (1, 0): None})
    both = agreement(run_of(tmp_path, "b", {(0, 0): None, (1, 0): None}), base)
    one = agreement(run_of(tmp_path, "c", {(0, 0): None, (1, 0): 2.0}), base)
    assert both is not None and one is not None
    assert (both.is_equal, one.is_equal, one.worst.difference) == (True, False, float("inf"))


def test_what_cannot_be_paired_is_not_compared(tmp_path):
    base = run_of(tmp_path, "a", {(0, 0): 1.0})
    assert agreement(run_of(tmp_path, "none", {}), base) is None
    assert agreement(run_of(tmp_path, "more micro-steps", {(0, 0): 1.0, (0, 1): 1.0}), base) is None
    assert agreement(run_of(tmp_path, "more ranks", {(0, 0): 1.0}, {(0, 0): 1.0}), base) is None
