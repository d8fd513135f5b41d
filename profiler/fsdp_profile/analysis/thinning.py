"""Fewer rows of a ledger, such that every drawn instant existed.

[Note: Rows, not bands] A bin of events keeps its rows at the least and at the greatest total, each with all
categories as they were at that event. Thinning each band by itself picks different instants per band, and the
stack then shows states that never were. The peak is the greatest of its bin, so it is always kept.
"""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

MAX_ROWS = 1200
"""Plotly redraws 8 bands of this many rows in about 80 ms, of twice as many in 100, of 20,000 in 400."""


def kept_rows(total: Ints, *, max_rows: int = MAX_ROWS) -> Ints:
    """Rows to draw, in order: all when few, else first, last and each bin's least and greatest total."""
    num_rows = len(total)
    if num_rows <= max_rows:
        return np.arange(num_rows)
    bins = (max_rows - 2) // 2
    per_bin = -(-num_rows // bins)
    padded = np.concatenate([total, np.full(-num_rows % per_bin, total[-1])]).reshape(-1, per_bin)
    start = np.arange(len(padded)) * per_bin
    picked = np.concatenate([[0], start + padded.argmin(axis=1), start + padded.argmax(axis=1), [num_rows - 1]])
    return np.unique(np.minimum(picked, num_rows - 1))
