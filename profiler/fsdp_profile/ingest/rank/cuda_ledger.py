"""The ledger of a CUDA rank, from the allocator's history that its capture kept in chunks.

A block counts as allocated until its free was requested; until it completed it is "freed but held by a stream",
which is in `active_bytes` only.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core.capture_log import CUDA_EVENTS, SITE
from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.rank.capture_log import StringTable
from fsdp_profile.ingest.rank.nesting import innermost
from fsdp_profile.ingest.rank.pairing import Blocks, Ledger, Samples
from fsdp_profile.ingest.snapshot.reader import DeviceHistory, history_from_snapshot


def device_history(chunks: list[dict[str, Any]]) -> DeviceHistory | None:
    """The history of the device with most events, from the chunks of one rank's capture; None without any.

    Raises:
        InputError: the chunks are not an allocator's history.
    """
    counts: dict[int, int] = {}
    for chunk in chunks:
        counts[chunk["device"]] = counts.get(chunk["device"], 0) + len(chunk["events"]["time_us"])
    if not counts:
        return None
    device = max(counts, key=lambda d: (counts[d], -d))
    mine = [chunk for chunk in chunks if chunk["device"] == device]
    trace = [
        dict(zip(CUDA_EVENTS, event, strict=True))
        for chunk in mine
        for event in zip(*(chunk["events"][column] for column in CUDA_EVENTS), strict=True)
    ]
    for event, site in zip(trace, (site for chunk in mine for site in _sites(chunk)), strict=True):
        if site:
            event["frames"] = [_frame(site)]
    traces: list[list[Any]] = [[] for _ in range(device)] + [trace]
    histories = history_from_snapshot({"segments": mine[-1]["segments"], "device_traces": traces})
    return next(h for h in histories if h.device == device)


def _sites(chunk: dict[str, Any]) -> list[str]:
    """The line of user code of each event of a chunk; '' without stacks."""
    events = chunk["events"]
    return events.get(SITE) or [""] * len(events["time_us"])


def _frame(site: str) -> dict[str, Any]:
    """'train.py:12 forward' as a frame of a snapshot."""
    where, _, name = site.partition(" ")
    file, _, line = where.rpartition(":")
    return {"filename": file, "line": int(line) if line.isdecimal() else 0, "name": name}


def ring_warnings(chunks: list[dict[str, Any]]) -> list[str]:
    """What the capture's chunks lost to the ring buffer of the allocator's history."""
    if not any(chunk.get("ring_was_full") for chunk in chunks):
        return []
    return ["the allocator's history ring was full: events are missing between steps"]


def ledger_of_history(
    history: DeviceHistory, strings: StringTable, *, calls: Mapping[str, list[Any]] | None = None
) -> Ledger:
    """The ledger of one device's history; row 0 of the samples is the state before the first event.

    `calls`: path, start_ns and end_ns of modules' calls; a block gets the innermost one it was allocated in.
    """
    blocks, samples = history.blocks, history.samples
    first_ns = int(samples.column("t_ns")[0].as_py()) if samples.num_rows else 0

    def column(table: pa.Table, name: str) -> Any:
        return table.column(name).to_numpy()

    start_event = np.maximum(column(blocks, "start_event") + 1, 0)
    start_event[column(blocks, "preexisting")] = 0
    requested = column(blocks, "end_requested_event")
    keep = requested >= 0  # a free requested before the recording is not allocated any more
    end_event = np.where(requested == NOT_FREED, NOT_FREED, requested + 1)
    places = history.stacks.column("location").to_pylist()
    sites = [places[stack] if stack is not None else "" for stack in blocks.column("stack").to_pylist()]
    operators = [word or "" for word in blocks.column("operator").to_pylist()]
    allocated = np.concatenate([[history.start.allocated_bytes], column(samples, "allocated_bytes")])
    order = np.argsort(start_event[keep], kind="stable")

    def kept(values: Any) -> Any:
        return values[keep][order]

    return Ledger(
        blocks=Blocks(
            address=kept(column(blocks, "address")),
            size_bytes=kept(column(blocks, "size_bytes")),
            start_ns=kept(column(blocks, "start_ns")),
            end_ns=kept(column(blocks, "end_requested_ns")),
            start_event=kept(start_event),
            end_event=kept(end_event),
            operator=kept(strings.codes(operators)),
            site=kept(strings.codes(sites)),
            module=kept(_modules(calls or {}, column(blocks, "start_ns"), strings)),
            transport=np.full(int(keep.sum()), -1, np.int64),
            stream=kept(column(blocks, "stream")),
            free_unreported=kept(column(blocks, "free_unreported")),
        ),
        samples=Samples(
            t_ns=np.concatenate([[first_ns], column(samples, "t_ns")]),
            delta_bytes=np.diff(allocated, prepend=0),
            allocated_bytes=allocated,
            reported_bytes=None,
            unreported_free_bytes=np.zeros(len(allocated), np.int64),
            reserved_bytes=np.concatenate([[history.start.reserved_bytes], column(samples, "reserved_bytes")]),
            active_bytes=np.concatenate([[history.start.active_bytes], column(samples, "active_bytes")]),
        ),
        warnings=history.warnings,
    )


def _modules(calls: Mapping[str, list[Any]], t_ns: Any, strings: StringTable) -> Any:
    """Codes of the paths of the innermost modules running at each time; 0 where there is none."""
    paths = strings.codes([*calls.get("path", []), ""])  # the last one stands for none
    starts, ends = (np.array(calls.get(name, []), np.int64) for name in ("start_ns", "end_ns"))
    return paths[innermost(starts, ends, t_ns)]
