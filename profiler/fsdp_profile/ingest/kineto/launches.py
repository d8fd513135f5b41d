"""When the host launched device work, from the launches in a Kineto trace, joined by correlation."""

from typing import Any

import numpy as np

from fsdp_profile.ingest.kineto.names import LAUNCH_CATEGORIES
from fsdp_profile.ingest.kineto.reader import Trace
from fsdp_profile.ingest.tables import numbers, words

Array = np.ndarray[Any, Any]


def launches_of_events(trace: Trace, rows: Array) -> tuple[Array, Array]:
    """For some events of the device: row of the event that launched each, and whether there is one in the trace."""
    events = trace.events
    category, listed = words(events, "category")
    correlation = numbers(events, "correlation")
    is_launch = np.isin(category, [i for i, word in enumerate(listed) if word in LAUNCH_CATEGORIES])
    calls = np.flatnonzero(is_launch & (correlation >= 0))
    if not len(calls):
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    place = np.minimum(np.searchsorted(correlation[calls], correlation[rows]), len(calls) - 1)
    launcher = calls[place]
    return launcher, correlation[launcher] == correlation[rows]


def launch_column(trace: Trace, rows: Array) -> list[int | None]:
    """Column `launch_ns` of some events of the device: when the launching call returned; None where it is not known."""
    launcher, is_known = launches_of_events(trace, rows)
    returned = numbers(trace.events, "end_ns")[launcher] if len(trace.events) else launcher
    return [int(t) if known else None for t, known in zip(returned.tolist(), is_known.tolist(), strict=True)]
