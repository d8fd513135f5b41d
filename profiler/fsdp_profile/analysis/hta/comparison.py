"""Our time breakdown beside HTA's, by rank, and what HTA leaves out of a trace or counts otherwise.

[Note: Why HTA's numbers differ]
Checked in the source of traceinsight 0.6.1. With two ProfilerSteps or more in a run HTA keeps only device work
whose launch is in the trace: what was launched before the recording began is dropped, though the device ran it. What
is communication it takes from the start of the kernel's name (nccl, hccl, hip) or `ncclKernel` anywhere in it: other
libraries' collectives (DeepEP, symmetric memory) are compute to it. An event of any category with a stream in its
arguments is device work to it, such as the host operators of Triton. Where HTA has the same rules to go by, its
numbers are ours (tests/analysis/hta/test_recorded.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.time.breakdown import TimeBreakdown, time_breakdown
from fsdp_profile.analysis.time.launches import Launches, launches_of
from fsdp_profile.ingest.kineto.reader import Trace, read_trace
from fsdp_profile.ingest.tables import strings, words

SAME_RATIO: Final = 0.6e-4
"""HTA rounds to two decimals of a percent: what is nearer is the same."""

_HTA_COMMUNICATION: Final = re.compile(r"nccl|hip|hccl|.*ncclKernel")
_HTA_COLUMNS: Final = {"overlap": "comp_comm_overlap_pctg", "idle": "idle_time_pctg", "compute": "compute_time_pctg"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratios:
    """The three ratios that both tools report; None where a tool does not report one."""

    overlap: float | None
    """Communication hidden behind compute / communication."""
    idle: float | None
    """Time without device work / span from the first start to the last end of device work."""
    compute: float | None
    """Compute / the same span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """The parts of one trace that make HTA's numbers differ."""

    num_works: int
    """Kernels, copies and fills."""
    num_dropped: int
    """Works that HTA drops because their launch is not in the recording."""
    num_collectives: int
    num_taken_for_compute: int
    """Collectives that HTA counts as compute, because of the names of their kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ours:
    """The breakdown of one rank by this profiler, from the run and from its trace."""

    breakdown: TimeBreakdown | None
    """Over the whole recording, with host-bound time; None when no kernels were recorded."""
    differences: Differences

    @property
    def ratios(self) -> Ratios:
        """The three ratios that HTA has too."""
        found = self.breakdown
        if found is None:
            return Ratios(overlap=None, idle=None, compute=None)
        return Ratios(overlap=found.overlap_ratio, idle=found.idle_ratio, compute=found.compute_ratio)


def ours_by_rank(run: Run, traces: Mapping[int, Path]) -> dict[int, Ours]:
    """Our breakdown of each rank that has a trace.

    Raises:
        InputError: a trace that cannot be read.
    """
    found: dict[int, Ours] = {}
    steps: set[str] = set()
    for rank, path in traces.items():
        trace = read_trace(path, rank=rank)
        launches = launches_of(trace)
        steps |= _profiler_steps(trace)
        found[rank] = Ours(
            breakdown=time_breakdown(run, rank=rank, queued=launches.queued),
            differences=differences(trace, launches),
        )
    if len(steps) > 1:
        return found
    return {r: replace(our, differences=replace(our.differences, num_dropped=0)) for r, our in found.items()}


def differences(trace: Trace, launches: Launches) -> Differences:
    """What HTA leaves out of a trace or counts otherwise; see [Note: Why HTA's numbers differ].

    The result assumes two ProfilerSteps or more in the run: with fewer, HTA drops nothing.
    """
    kernels = strings(trace.collectives, "transport")
    return Differences(
        num_works=launches.num_works,
        num_dropped=launches.num_unknown,
        num_collectives=len(kernels),
        num_taken_for_compute=sum(not _HTA_COMMUNICATION.match(name) for name in kernels),
    )


def hta_ratios(tables: list[HtaTable]) -> dict[int, Ratios]:
    """The three ratios of each rank in HTA's tables; a table it did not give leaves None."""
    found: dict[int, dict[str, float | None]] = {}
    for table in tables:
        for word, column in _HTA_COLUMNS.items():
            if column in table.columns and "rank" in table.columns:
                rank_at, at = table.columns.index("rank"), table.columns.index(column)
                for row in table.rows:
                    found.setdefault(int(row[rank_at]), {})[word] = _ratio(row[at])
    return {
        rank: Ratios(overlap=row.get("overlap"), idle=row.get("idle"), compute=row.get("compute"))
        for rank, row in sorted(found.items())
    }


def is_same(hta: float | None, ours: float | None) -> bool | None:
    """Whether two ratios agree to the decimals HTA gives; None where one of them is missing."""
    return None if hta is None or ours is None else abs(hta - ours) < SAME_RATIO


def _profiler_steps(trace: Trace) -> set[str]:
    codes, names = words(trace.events, "name")
    return {names[code] for code in np.unique(codes).tolist() if names[code].startswith("ProfilerStep#")}


def _ratio(percent: Any) -> float | None:
    return None if percent is None else float(percent) / 100
