"""Fewer rows of a ledger, such that every drawn instant existed and nothing is held for longer than it was.

[Note: Rows, not bands] A bin keeps its rows at the least, at the greatest and at the last total, each with all
categories as they were at that event. Thinning each band by itself picks different instants per band, and the
stack then shows states that never were. The peak is the greatest of its bin, so it is always kept.

[Note: Bins of time] A value holds until the next event. Bins are of equal time, and each keeps its last row: what is
held into a quiet stretch is then what was held, and a drawing is off for less than a bin, wherever its events lie.
"""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

MAX_ROWS = 1200
"""Plotly redraws 8 bands of this many rows in about 80 ms, of twice as many in 100, of 20,000 in 400."""
_FINEST = 32
"""Bins tried for each row allowed: where most of the time is quiet, most bins are empty."""


def kept_rows(total: Ints, t_ns: Ints, *, max_rows: int = MAX_ROWS) -> Ints:
    """Rows to draw, in order: all when few, else the first, and each bin's least, greatest and last total.

    Args:
        total: live bytes after each event.
        t_ns: when each was, in order.
        max_rows: at most so many; 6 or more.
    """
    if len(total) <= max_rows:
        return np.arange(len(total))
    bins = max_rows * _FINEST
    while True:
        bins = max(bins // 2, 1)
        rows = _of_bins(total, t_ns, bins)
        if len(rows) <= max_rows or bins == 1:
            return rows


def _of_bins(total: Ints, t_ns: Ints, bins: int) -> Ints:
    since = (t_ns - t_ns[0]).astype(np.float64)
    column = np.minimum((since * (bins / max(float(since[-1]), 1.0))).astype(np.int64), bins - 1)
    begins = np.flatnonzero(np.diff(column, prepend=-1))
    lasts = np.append(begins[1:], len(total)) - 1
    bin_of = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(total)))
    extremes = [
        _first_in_bin(total == extreme.reduceat(total, begins)[bin_of], bin_of) for extreme in (np.minimum, np.maximum)
    ]
    return np.unique(np.concatenate([[0], *extremes, lasts]))


def _first_in_bin(is_it: "np.ndarray[Any, np.dtype[np.bool_]]", bin_of: Ints) -> Ints:
    rows = np.flatnonzero(is_it)
    return rows[np.flatnonzero(np.diff(bin_of[rows], prepend=-1))]
