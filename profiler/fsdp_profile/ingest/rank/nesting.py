"""Which of some nested intervals contains a time."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def innermost(start: Array, end: Array, t_ns: Array) -> Array:
    """The row of the interval around each time that began last; -1 where there is none.

    Intervals nest (the calls of one thread): the open one that began last is inside all others. An interval
    includes its start, and not its end.
    """
    rows = np.lexsort((-end, start))
    start, end = start[rows], end[rows]
    parent = np.full(len(rows), -1, np.int64)
    open_rows: list[int] = []
    for i in range(len(rows)):
        while open_rows and end[open_rows[-1]] <= start[i]:
            open_rows.pop()
        parent[i] = open_rows[-1] if open_rows else -1
        open_rows.append(i)
    found = np.searchsorted(start, t_ns, side="right") - 1
    while len(end):
        is_over = (found >= 0) & (end[found] <= t_ns)
        if not is_over.any():
            break
        found[is_over] = parent[found[is_over]]
    return np.where(found >= 0, rows[found], -1) if len(rows) else found
