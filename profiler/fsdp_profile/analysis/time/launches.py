"""When the host launched a rank's device work, from its Kineto trace.

Work whose launch is not in the recording was launched before it began: it counts as waiting from the start on.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.spans.intervals import Ints, union
from fsdp_profile.ingest.kineto.launches import launches_of_events
from fsdp_profile.ingest.kineto.reader import Trace
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
    """The queue according to a trace; a kernel that begins while its launching call still runs has not waited."""
    events = trace.events
    code, listed = words(events, "category")
    start, end = (numbers(events, name) for name in ("start_ns", "end_ns"))
    works = np.flatnonzero(np.isin(code, [i for i, word in enumerate(listed) if word in _DEVICE_WORK]))
    launcher, is_known = launches_of_events(trace, works)
    launched = np.where(is_known, end[launcher], start.min()) if len(start) else launcher
    return Launches(
        queued=union(launched, start[works]),
        num_works=len(works),
        num_unknown=int((~is_known).sum()),
    )
