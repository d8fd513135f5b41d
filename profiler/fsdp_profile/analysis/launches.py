"""When the host launched a rank's device work, from its Kineto trace.

Work whose launch is not in the recording was launched before it began: it counts as waiting from the start on.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.intervals import Ints, union
from fsdp_profile.ingest.kineto import Trace
from fsdp_profile.ingest.kineto_names import LAUNCH_CATEGORIES
from fsdp_profile.ingest.tables import numbers, words

_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "collective_comm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """The queue of a device, all streams together."""

    queued: tuple[Ints, Ints]
    """Disjoint spans in which something had been launched (the host's call had returned) and had not begun."""
    num_works: int
    """Kernels, copies and fills in the trace."""
    num_unknown: int
    """Those whose launch is not in the recording."""


def launches_of(trace: Trace) -> Launches:
    """The queue as a trace tells it; a kernel that begins while its launch still runs has not waited."""
    events = trace.events
    code, listed = words(events, "category")
    correlation, start, end = (numbers(events, name) for name in ("correlation", "start_ns", "end_ns"))
    works = np.flatnonzero(np.isin(code, [i for i, word in enumerate(listed) if word in _DEVICE_WORK]))
    is_launch = np.isin(code, [i for i, word in enumerate(listed) if word in LAUNCH_CATEGORIES])
    calls = np.flatnonzero(is_launch & (correlation >= 0))
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    is_known = np.zeros(len(works), np.bool_)
    launched = np.full(len(works), start.min() if len(start) else 0)
    if len(calls):
        place = np.minimum(np.searchsorted(correlation[calls], correlation[works]), len(calls) - 1)
        is_known = correlation[calls[place]] == correlation[works]
        launched = np.where(is_known, end[calls[place]], launched)
    return Launches(
        queued=union(launched, start[works]),
        num_works=len(works),
        num_unknown=int((~is_known).sum()),
    )
