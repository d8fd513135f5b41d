"""The memory tables of a rank: its ledger, `memory_samples`, `allocations` and `ooms`.

[Note: Preexisting blocks] torch counts the CPU's allocations only while a profiler runs, and does not report a free
whose alloc it did not see. So where the recording began late (docs/launchers.md), the tensors that are alive then are
read, and again at the first forward: a block that is gone by then was freed in between, and its free is placed at the
first forward. An address that is allocated again shows that its block is gone, too.
"""

from typing import Any

import numpy as np

from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.core.errors import asked_bytes, is_out_of_memory
from fsdp_profile.core.schema import Basis, Phase
from fsdp_profile.ingest.rank.attribution import Clock, Parts, attribute
from fsdp_profile.ingest.rank.capture_log import CaptureLog, Columns
from fsdp_profile.ingest.rank.communication import transport_ends_ns, with_handed_over
from fsdp_profile.ingest.rank.pairing import Ledger, Samples, pair_cpu_events, with_mapped

Array = np.ndarray[Any, Any]


def cpu_ledger(log: CaptureLog) -> Ledger | None:
    """The ledger of a CPU rank; None when no allocator event was recorded."""
    if len(log.allocator["t_ns"]) == 0:
        return None
    events = {**log.allocator, "transport": with_handed_over(log)}
    events = with_preexisting(events, log.preexisting)
    return pair_cpu_events(**events, transport_end_ns=transport_ends_ns(log), drops=log.drops, tags=log.tags)


def with_preexisting(events: Columns, preexisting: list[tuple[int, Columns]]) -> Columns:
    """Allocator events, in time order, with preexisting blocks as events like others; see [Note: Preexisting blocks].

    Args:
        events: allocator events.
        preexisting: (t_ns, blocks) when the recording began, then at the first forward.
    """
    if not preexisting:
        return events
    (began_ns, first), (gone_ns, last) = preexisting[0], preexisting[-1]
    at = int(np.searchsorted(events["t_ns"], gone_ns, side="right"))
    is_gone = ~np.isin(first["address"], np.concatenate([last["address"], events["address"][:at]]))
    size, gone = first["size_bytes"], -first["size_bytes"][is_gone]
    begin_ns = min([began_ns, *events["t_ns"][:1].tolist()])
    reported = with_mapped(events["delta_bytes"], events["reported_bytes"])
    carried = int(reported[at - 1]) if at else 0

    def spliced(name: str, before: Any, between: Any) -> Array:
        column = events[name] if name != "reported_bytes" else reported
        both = np.full(len(size), before), np.full(len(gone), between)
        parts = [both[0].astype(column.dtype), column[:at], both[1].astype(column.dtype), column[at:]]
        return np.concatenate(parts)

    ours = np.concatenate([size, np.zeros(at, np.int64), gone, np.zeros(len(reported) - at, np.int64)]).cumsum()
    return {
        **{name: spliced(name, 0, 0) for name in events},
        "t_ns": spliced("t_ns", begin_ns, gone_ns),
        "address": spliced("address", first["address"], first["address"][is_gone]),
        "delta_bytes": spliced("delta_bytes", size, gone),
        "reported_bytes": spliced("reported_bytes", 0, carried) + ours,
        "transport": spliced("transport", -1, -1),
    }


def sample_columns(ledger: Ledger, clock: Clock) -> dict[str, Any]:
    """Columns of the `memory_samples` table."""
    samples = ledger.samples
    columns = {
        "t_ns": samples.t_ns,
        "step": clock.steps(samples.t_ns),
        "phase": _coded(clock, samples.t_ns),
        "delta_bytes": samples.delta_bytes,
        "allocated_bytes": samples.allocated_bytes,
        "unreported_free_bytes": samples.unreported_free_bytes,
    }
    for name in ("reported_bytes", "reserved_bytes", "active_bytes"):
        if getattr(samples, name) is not None:
            columns[name] = getattr(samples, name)
    return columns


def _coded(clock: Clock, t_ns: Array) -> tuple[Array, list[str]]:
    vocabulary = [phase.value for phase in Phase]
    code_of_phase = np.array([vocabulary.index(phase) for phase in clock.phases])
    return code_of_phase[clock.phase_index(t_ns)], vocabulary


def allocation_columns(log: CaptureLog, ledger: Ledger, clock: Clock) -> dict[str, Any]:
    """Columns of the `allocations` table: a row per block and category that it had."""
    blocks, samples = ledger.blocks, ledger.samples
    parts: Parts = attribute(log, blocks, clock, transport_ends_ns(log))
    block = parts.block
    start_event, end_event = blocks.start_event[block], blocks.end_event[block]
    # A part that begins or ends inside a block's life does so at the first event after that moment.
    goes_on = np.flatnonzero(parts.start_ns > blocks.start_ns[block])
    switch = np.searchsorted(samples.t_ns, parts.start_ns[goes_on], side="left")
    switch = np.minimum(np.maximum(switch, start_event[goes_on]), end_event[goes_on])
    start_event, end_event = start_event.copy(), end_event.copy()
    start_event[goes_on] = switch
    end_event[goes_on - 1] = switch
    return {
        "allocation": block,
        "address": blocks.address[block],
        "size_bytes": blocks.size_bytes[block],
        "start_ns": parts.start_ns,
        "end_ns": parts.end_ns,
        "start_event": start_event,
        "end_event": end_event,
        "category": (parts.category, [category.value for category in CATEGORIES]),
        "basis": (parts.basis, [basis.value for basis in Basis]),
        "unit": parts.unit,
        "name": (parts.name, log.strings.texts),
        "operator": (blocks.operator[block], log.strings.texts),
        "site": (blocks.site[block], log.strings.texts),
        "module": (blocks.module[block], log.strings.texts),
        "step": clock.steps(blocks.start_ns[block]),
        "phase": _coded(clock, blocks.start_ns[block]),
        "stream": blocks.stream[block],
        "free_unreported": blocks.free_unreported[block],
    }


def oom_columns(log: CaptureLog, samples: Samples) -> dict[str, Any]:
    """Columns of the `ooms` table: one row when the rank ran out of memory, else none.

    On CPU only the exception that ended the rank reports a failed allocation. While it unwinds the stack, operators
    free their blocks: the last allocation is the moment before the failure.
    """
    message = str((log.failure or {}).get("message", ""))
    took = np.flatnonzero(samples.delta_bytes > 0)
    if log.failure is None or not is_out_of_memory(message) or not len(took):
        return {name: [] for name in ("t_ns", "event", "asked_bytes", "device_free_bytes", "stream")}
    event = int(took[-1])
    return {
        "t_ns": [int(samples.t_ns[event])],
        "event": [event],
        "asked_bytes": [asked_bytes(message)],
        "device_free_bytes": [None],
        "stream": [0],
    }
