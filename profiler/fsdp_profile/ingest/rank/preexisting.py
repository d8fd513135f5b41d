"""CPU: blocks that were there before a late recording, as allocator events like others.

[Note: What was there before] torch counts the CPU's allocations only while a profiler runs, and says nothing of a free
whose alloc it did not see. So where the recording began late (docs/launchers.md), the tensors that were alive then are
read, and again at the first forward: what is gone by then was freed on the way, at the latest then. An address that is
allocated again tells that its block is gone, too.
"""

from typing import Any

import numpy as np

from fsdp_profile.ingest.rank.pairing import with_mapped

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]


def with_held(events: Columns, held: list[tuple[int, Columns]]) -> Columns:
    """Allocator events, in time order, with the blocks of `held`; see [Note: What was there before].

    `held` is (t_ns, address and size_bytes) of the tensors when the recording began, then at the first forward.
    """
    if not held:
        return events
    (began_ns, first), (gone_ns, last) = held[0], held[-1]
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
