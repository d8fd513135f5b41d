"""The innermost of nested intervals, held against looking at all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.ingest.rank.nesting import innermost


def test_the_interval_that_began_last_wins_and_its_end_is_outside() -> None:
    start, end = np.array([0, 2, 2, 10]), np.array([9, 8, 4, 12])
    found = innermost(start, end, np.array([-1, 0, 2, 3, 4, 8, 9, 10, 12]))
    assert found.tolist() == [-1, 0, 2, 2, 1, 0, -1, 3, -1]


def test_without_intervals_there_is_none() -> None:
    none = np.zeros(0, np.int64)
    assert innermost(none, none, np.array([1, 2])).tolist() == [-1, -1]


def nested(draw: st.DrawFn, low: int, high: int, depth: int) -> list[tuple[int, int]]:
    """Intervals inside [low, high): one at a time, each with its own inside."""
    found: list[tuple[int, int]] = []
    at = low
    while depth and at < high and draw(st.booleans()):
        start = draw(st.integers(at, high - 1))
        end = draw(st.integers(start + 1, high))
        found += [(start, end), *nested(draw, start, end, depth - 1)]
        at = end
    return found


@st.composite
def calls(draw: st.DrawFn) -> list[tuple[int, int]]:
    return draw(st.permutations(nested(draw, 0, 40, 4)))


@given(calls(), st.lists(st.integers(-2, 42)))
def test_it_is_the_shortest_that_holds_the_time(intervals: list[tuple[int, int]], times: list[int]) -> None:
    start, end = (np.array([pair[i] for pair in intervals], np.int64) for i in (0, 1))
    for t, row in zip(times, innermost(start, end, np.array(times, np.int64)), strict=True):
        around = [high - low for low, high in intervals if low <= t < high]
        assert (None if row < 0 else end[row] - start[row]) == min(around, default=None)
        assert row < 0 or start[row] <= t < end[row]
