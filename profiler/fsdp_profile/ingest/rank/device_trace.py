"""Kernels and collectives of a CUDA rank, from the Kineto trace its capture kept.

The kernel knows when, the trace's `record_param_comms` what and for which group, and the hooks for which unit: a
collective belongs to the call of torch.distributed around its issue on the host.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fsdp_profile.core.schema import NO_UNIT
from fsdp_profile.ingest.kineto.launches import launch_column
from fsdp_profile.ingest.kineto.reader import Trace, read_trace
from fsdp_profile.ingest.rank.attribution import Clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog
from fsdp_profile.ingest.rank.communication import call_around
from fsdp_profile.ingest.tables import numbers, strings

_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


def read_device_trace(path: Path, rank: int) -> Trace:
    """The trace of a rank; its rank is given, for it lies in the rank's folder.

    Raises:
        InputError: damaged beyond use.
    """
    return read_trace(path, rank=rank)


def kernel_columns(trace: Trace, clock: Clock) -> dict[str, Any]:
    """Columns of the `kernels` table: device work that is not communication."""
    events = trace.events
    is_kernel = np.isin(strings(events, "category").astype(str), _DEVICE_CATEGORIES)
    is_kernel[numbers(trace.collectives, "event")] = False
    rows = np.flatnonzero(is_kernel)
    start = numbers(events, "start_ns")[rows]
    return {
        "name": list(strings(events, "name")[rows]),
        "start_ns": start,
        "end_ns": numbers(events, "end_ns")[rows],
        "stream": numbers(events, "stream")[rows],
        "step": clock.steps(start),
        "launch_ns": launch_column(trace, rows),
    }


def device_collective_columns(trace: Trace, log: CaptureLog, clock: Clock) -> dict[str, Any]:
    """Columns of the `collectives` table, one row per communication kernel."""
    found = trace.collectives
    event = numbers(found, "event")
    start = numbers(trace.events, "start_ns")[event]
    issued = found.column("issue_ns").to_numpy(zero_copy_only=False)
    issue = np.where(np.isnan(issued.astype(float)), start, issued).astype(np.int64)
    calls = log.calls
    call = call_around(calls["start_ns"], calls["end_ns"], issue)
    unit = np.where(call >= 0, calls["unit"][call] if len(calls["unit"]) else NO_UNIT, NO_UNIT)
    return {
        "kind": list(strings(found, "kind")),
        "start_ns": start,
        "end_ns": numbers(trace.events, "end_ns")[event],
        "issue_ns": issue,
        "step": clock.steps(issue),
        "phase": list(clock.phase_names(clock.phase_index(issue))),
        "unit": unit,
        "size_bytes": found.column("size_bytes").to_pylist(),
        "group_size": found.column("group_size").to_pylist(),
        "transport": list(strings(trace.events, "name")[event]),
        **{name: found.column(name).to_pylist() for name in ("group", "group_description", "dtype")},
        "sequence": found.column("seq").to_pylist(),
        "launch_ns": launch_column(trace, event),
    }
