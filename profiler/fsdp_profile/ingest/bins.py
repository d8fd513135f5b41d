"""Downsample a total over time: the rows that each bin needs to be drawn."""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def rows_of_bins(total: Ints, bin_of: Ints) -> Ints:
    """The first row, and of each bin the rows at its least, at its greatest and at its last total; in order.

    Args:
        total: one value a row, at least one row.
        bin_of: the bin of each row, never less than that of the row before.
    """
    begins = np.flatnonzero(np.diff(bin_of, prepend=bin_of[0] - 1))
    ends = np.append(begins[1:], len(total))
    number = np.repeat(np.arange(len(begins)), ends - begins)
    picked = [np.zeros(1, np.int64), ends - 1]
    for extreme in (np.minimum, np.maximum):
        rows = np.flatnonzero(total == extreme.reduceat(total, begins)[number])
        picked.append(rows[np.flatnonzero(np.diff(number[rows], prepend=-1))])  # the first of equal ones
    return np.unique(np.concatenate(picked))
