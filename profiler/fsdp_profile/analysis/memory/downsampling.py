"""Fewer rows of a ledger, such that every drawn instant existed and nothing is held for longer than it was.

[Note: Rows, not bands] A bin keeps its rows at the least, at the greatest and at the last total, each with all
categories as they were at that event. Thinning each band by itself picks different instants per band, and the
stack then shows states that never occurred. The peak is the greatest of its bin, so it is always included.

[Note: Bins of time] A value holds until the next event. Bins are of equal time, and each keeps its last row: what is
held into a quiet time is then what was held, and a drawing is off for less than a bin, wherever its events lie.
"""

import numpy as np

from fsdp_profile.ingest.bins import Ints, rows_of_bins

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
    since = (t_ns - t_ns[0]).astype(np.float64) / max(float(t_ns[-1] - t_ns[0]), 1.0)
    bins = max_rows * _FINEST
    while True:
        bins = max(bins // 2, 1)
        rows = rows_of_bins(total, np.minimum((since * bins).astype(np.int64), bins - 1))
        if len(rows) <= max_rows or bins == 1:
            return rows
