import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.analysis.memory.downsampling import MAX_ROWS, kept_rows


def test_few_rows_are_all_kept():
    assert kept_rows(np.array([3, 1, 2]), np.array([5, 6, 9])).tolist() == [0, 1, 2]


def test_each_bin_of_time_keeps_its_least_greatest_and_last_total():
    total = np.array([5, 9, 1, 5, 5, 2, 8, 5])
    t_ns = np.array([0, 1, 2, 3, 100, 101, 102, 103])
    assert kept_rows(total, t_ns, max_rows=7).tolist() == [0, 1, 2, 3, 5, 6, 7]


def test_what_is_held_into_a_quiet_stretch_is_what_was_held():
    """A burst, then one event that nothing follows for nearly all of the time, then a burst."""
    rng = np.random.default_rng(7)
    t_ns = np.concatenate([np.arange(3_000), [3_000], 1_000_000 + np.arange(3_000)])
    total = np.concatenate([rng.integers(0, 1 << 40, 3_000), [77], rng.integers(0, 1 << 40, 3_000)])
    rows = kept_rows(total, t_ns, max_rows=100)
    assert len(rows) <= 100
    assert total[rows[np.searchsorted(t_ns[rows], 500_000, side="right") - 1]] == 77


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=400), st.integers(6, 60))
def test_a_thinned_ledger_is_off_for_less_than_a_bin_at_a_time(events, max_rows):
    t_ns = np.cumsum([gap for gap, _ in events])
    total = np.array([size for _, size in events])
    rows = kept_rows(total, t_ns, max_rows=max_rows)
    assert len(rows) <= max_rows
    assert {int(total.argmin()), int(total.argmax())} <= set(rows.tolist())
    moments = np.arange(t_ns[0], t_ns[-1] + 1)
    true = total[np.searchsorted(t_ns, moments, side="right") - 1]
    drawn = total[rows[np.searchsorted(t_ns[rows], moments, side="right") - 1]]
    off = np.flatnonzero(true != drawn)
    longest = max((len(part) for part in np.split(off, np.flatnonzero(np.diff(off) > 1) + 1)), default=0)
    assert longest <= 2 * (t_ns[-1] - t_ns[0]) / max(max_rows // 6, 1) + 1


@pytest.mark.parametrize("num_rows", [MAX_ROWS + 1, 5_000, 99_991])
def test_thinning_keeps_the_peak_and_the_bound(num_rows):
    total = np.random.default_rng(num_rows).integers(0, 1 << 40, num_rows)
    rows = kept_rows(total, np.arange(num_rows))
    assert len(rows) <= MAX_ROWS
    assert total.argmax() in rows
    assert total.argmin() in rows
    assert (rows[0], rows[-1]) == (0, num_rows - 1)
    assert (np.diff(rows) > 0).all()
