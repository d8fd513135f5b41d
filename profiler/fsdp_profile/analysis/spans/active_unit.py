"""The active unit at a moment: the unit of the innermost open span, which is the one that began last.

A prefetched all-gather does not make its unit active: it belongs to the unit that waits for it later.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.schema import NO_UNIT, SpanKind
from fsdp_profile.ingest.tables import numbers, words

Ints = np.ndarray[Any, np.dtype[np.int64]]

WORK_KINDS = (
    SpanKind.FORWARD,
    SpanKind.BACKWARD,
    SpanKind.ALL_GATHER,
    SpanKind.COPY_OUT,
    SpanKind.REDUCE,
    SpanKind.REDUCE_SCATTER,
)
"""Spans during which a unit is active; the other kinds only say that it exists or is done."""


def unit_at(run: Run, *, rank: int, t_ns: int) -> int:
    """The active unit at a moment; NO_UNIT without one."""
    return int(units_at(run, rank=rank, t_ns=np.array([t_ns]))[0])


def units_at(run: Run, *, rank: int, t_ns: Ints) -> Ints:
    """The active unit at each of some sorted moments; NO_UNIT where there is none."""
    spans = run.table("unit_spans", rank=rank)
    start, end, unit = numbers(spans, "start_ns"), numbers(spans, "end_ns"), numbers(spans, "unit")
    touched = is_kind(spans, *WORK_KINDS) & (start <= t_ns[-1]) & (end > t_ns[0])
    touched &= ~(is_kind(spans, SpanKind.ALL_GATHER) & numbers(spans, "prefetched").astype(bool))
    # Filled in order of start, so that the span that began last wins; of equal starts the first row does.
    row = np.flatnonzero(touched)
    row = row[np.lexsort((-row, start[row]))]
    found = np.full(len(t_ns), NO_UNIT, np.int64)
    begins, ends = np.searchsorted(t_ns, start[row]), np.searchsorted(t_ns, end[row])
    holds = begins < ends  # with few moments most spans hold none
    for begin, stop, which in zip(begins[holds], ends[holds], unit[row][holds], strict=True):
        found[begin:stop] = which
    return found


def is_kind(table: pa.Table, *kinds: object) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Which rows are of one of some kinds."""
    return is_word(table, "kind", *kinds)


def is_word(table: pa.Table, column: str, *wanted: object) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Which rows of a text column hold one of some words; compared once per word, not once per row."""
    codes, vocabulary = words(table, column)
    known = {str(word) for word in wanted}
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.array([word in known for word in vocabulary] + [False])[codes]
    return found
