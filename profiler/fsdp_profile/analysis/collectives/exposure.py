"""Collectives of one rank: how long they took and how much of that was exposed.

Exposed time is collective time that is not hidden behind compute. Compute is the union of the device kernels that are
neither communication nor copies and fills of memory; on CPU it is the union of the outermost operators of the training
thread that are not communication.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.intervals import covered_ns, length_ns, union
from fsdp_profile.ingest.tables import numbers, strings, words

Ints = np.ndarray[Any, np.dtype[np.int64]]

_MEMORY_WORK = ("Memcpy", "Memset", "memcpy", "memset")
"""Device work that is not compute, as Kineto names it; HTA draws the same line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindTotal:
    """All collectives of one kind in the training steps of one rank."""

    count: int
    size_bytes: int | None
    """Sum of the whole arrays' bytes; None when one of them was not recorded."""
    total_ns: int
    exposed_ns: int | None = None
    """The part of the total that was not hidden behind compute; None where no compute was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveSummary:
    """The collectives of the training steps of one rank. Times are unions: nothing counts twice."""

    total_ns: int
    exposed_ns: int | None
    """None where no compute was recorded."""
    by_kind: dict[str, KindTotal]

    @property
    def overlapped_ns(self) -> int | None:
        """The part of the total that was hidden behind compute."""
        return None if self.exposed_ns is None else self.total_ns - self.exposed_ns


def collective_summary(run: Run, *, rank: int) -> CollectiveSummary | None:
    """Totals over the training steps; None when no collectives were recorded."""
    table = run.table("collectives", rank=rank)
    trained = numbers(table, "step") >= 0
    if not trained.any():
        return None
    start, end = numbers(table, "start_ns")[trained], numbers(table, "end_ns")[trained]
    kind = strings(table, "kind").astype(str)[trained]
    size = table.column("size_bytes").to_numpy(zero_copy_only=False)[trained]
    compute = compute_spans(run, rank=rank)
    by_kind = {}
    for word in sorted(set(kind)):
        mine = kind == word
        total = size[mine].sum()
        by_kind[str(word)] = KindTotal(
            count=int(mine.sum()),
            size_bytes=None if np.isnan(float(total)) else int(total),
            total_ns=int((end[mine] - start[mine]).sum()),
            exposed_ns=None
            if compute is None
            else int((end[mine] - start[mine] - covered_ns(compute, start[mine], end[mine])).sum()),
        )
    spans = union(start, end)
    exposed = None
    if compute is not None:
        exposed = length_ns(*spans) - int(covered_ns(compute, *spans).sum())
    return CollectiveSummary(total_ns=length_ns(*spans), exposed_ns=exposed, by_kind=by_kind)


def exposed_ns(run: Run, *, rank: int) -> Ints | None:
    """The exposed time of each row of `collectives`; None where no compute was recorded."""
    table = run.table("collectives", rank=rank)
    compute = compute_spans(run, rank=rank)
    if compute is None:
        return None
    start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
    exposed: Ints = (end - start) - covered_ns(compute, start, end)
    return exposed


def compute_spans(run: Run, *, rank: int) -> tuple[Ints, Ints] | None:
    """Disjoint spans in which the rank computed; None when no kernels or operators were recorded."""
    kernels = run.table("kernels", rank=rank)
    if kernels.num_rows == 0:
        return None
    codes, listed = words(kernels, "name")
    computes = np.array([not name.startswith(_MEMORY_WORK) for name in listed], np.bool_)[codes]
    return union(numbers(kernels, "start_ns")[computes], numbers(kernels, "end_ns")[computes])
