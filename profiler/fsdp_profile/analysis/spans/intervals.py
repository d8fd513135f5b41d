"""Sets of time spans: union, length and intersection. A union counts no time twice."""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Disjoint, sorted spans that cover the same time; spans without length are dropped."""
    keep = end > start
    start, end = start[keep], end[keep]
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    is_first = np.ones(len(start), bool)
    is_first[1:] = start[1:] > end[:-1]
    first = np.flatnonzero(is_first)
    return start[first], end[np.append(first[1:] - 1, len(end) - 1)]


def length_ns(start: Ints, end: Ints) -> int:
    """Total time covered by disjoint spans."""
    return int((end - start).sum())


def covered_ns(spans: tuple[Ints, Ints], start: Ints, end: Ints) -> Ints:
    """How much of each span (start, end) is covered by disjoint, sorted `spans`."""
    begins, ends = spans
    if len(begins) == 0:
        return np.zeros(len(start), np.int64)
    before = np.concatenate([[0], np.cumsum(ends - begins)])

    def until(t: Ints) -> Ints:
        i = np.searchsorted(begins, t, side="right")
        last = np.maximum(i - 1, 0)
        inside = np.minimum(t, ends[last]) - begins[last]
        return np.where(i > 0, before[last] + inside, 0)

    return until(end) - until(start)
