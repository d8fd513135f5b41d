"""Collectives of one rank on CPU: what the strategy asked for, joined to what the transport did.

Three layers meet here. The hooks know kind, bytes, group and unit of every call of torch.distributed; DDP's reducer
calls from C++ and is seen only as `c10d::allreduce_` in backward, bucket after bucket. The operators `c10d::...` on
the calling thread are issued in the same order in which `gloo:...` carries them out on its own threads.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fsdp_profile.core.capture_log import BUCKET_REGION
from fsdp_profile.core.schema import NO_UNIT, CollectiveKind, Phase
from fsdp_profile.ingest.rank.attribution import FUNCTIONAL, Clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog

Array = np.ndarray[Any, Any]

_C10D_KINDS = (
    ("reduce_scatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("all_gather", CollectiveKind.ALL_GATHER),
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("broadcast", CollectiveKind.BROADCAST),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("barrier", CollectiveKind.BARRIER),
    ("gather_", CollectiveKind.OTHER),
    ("scatter_", CollectiveKind.OTHER),
    ("reduce_", CollectiveKind.REDUCE),
    ("send", CollectiveKind.SEND_RECV),
    ("recv", CollectiveKind.SEND_RECV),
)


def kind_of_c10d(name: str) -> CollectiveKind:
    """The kind that an operator such as `c10d::_reduce_scatter_base_` asks for.

    >>> str(kind_of_c10d("c10d::_reduce_scatter_base_")), str(kind_of_c10d("c10d::allreduce_"))
    ('REDUCE_SCATTER', 'ALL_REDUCE')
    """
    return next((kind for part, kind in _C10D_KINDS if part in name), CollectiveKind.OTHER)


def carriers(log: CaptureLog) -> tuple[Array, Array]:
    """Rows of `transport`: the issuing operators in order, and for each the one that carried it (-1: none seen)."""
    vocabulary = log.strings.texts
    names = [vocabulary[code] for code in log.transport["name"]]
    is_issue = np.array([name.startswith("c10d::") for name in names], bool)
    start = log.transport["start_ns"]
    issues = np.flatnonzero(is_issue)
    issues = issues[np.argsort(start[issues], kind="stable")]
    carrying = np.flatnonzero(~is_issue)
    carrying = carrying[np.argsort(start[carrying], kind="stable")]
    # By what may carry it: one queue for each transport, so that an operator on another group is not taken for it.
    queues: dict[str, list[int]] = {}
    for row in carrying.tolist():
        queues.setdefault(_transport_word(names[row]), []).append(row)
    place = dict.fromkeys(queues, 0)
    found = np.full(len(issues), -1, np.int64)
    for i, row in enumerate(issues.tolist()):
        wanted = [word for word in _carriers_of(names[row], queues) if word in queues]
        for word in wanted:
            queue = queues[word]
            while place[word] < len(queue) and start[queue[place[word]]] < start[row]:
                place[word] += 1
        ready = [word for word in wanted if place[word] < len(queues[word])]
        if ready:
            word = min(ready, key=lambda w: start[queues[w][place[w]]])
            found[i] = queues[word][place[word]]
            place[word] += 1
    return issues, found


_CARRIED_BY = {
    CollectiveKind.ALL_GATHER: ("all_gather", "allgather"),
    CollectiveKind.REDUCE_SCATTER: ("reduce_scatter", "all_reduce", "allreduce"),
    CollectiveKind.ALL_REDUCE: ("all_reduce", "allreduce"),
    CollectiveKind.BROADCAST: ("broadcast",),
    CollectiveKind.ALL_TO_ALL: ("all_to_all", "alltoall"),
    CollectiveKind.BARRIER: ("barrier",),
}
"""Words in the name of a transport's operator; gloo carries a reduce-scatter as an all-reduce."""


def _transport_word(name: str) -> str:
    """'all_gather' of 'gloo:all_gather'."""
    return name.rpartition(":")[2].split(" ")[0]


def _carriers_of(name: str, transports: Iterable[str]) -> list[str]:
    """Transports that may carry what an operator asks for; all of them where that is not known."""
    parts = _CARRIED_BY.get(kind_of_c10d(name))
    return [word for word in transports if parts is None or any(part in word for part in parts)]


def transport_ends_ns(log: CaptureLog) -> Array:
    """For each row of `transport`: when the work it issued was over."""
    end: Array = log.transport["end_ns"].copy()
    issues, carrier = carriers(log)
    has_one = carrier >= 0
    end[issues[has_one]] = np.maximum(end[issues[has_one]], log.transport["end_ns"][carrier[has_one]])
    return end


def collective_columns(log: CaptureLog, clock: Clock) -> dict[str, Any]:
    """Columns of the `collectives` table."""
    vocabulary = log.strings.texts
    issues, carrier = carriers(log)
    transport, calls = log.transport, log.calls
    issue_ns = transport["start_ns"][issues]
    call = call_around(calls["start_ns"], calls["end_ns"], issue_ns)
    if len(issues) == 0:  # no operators recorded: the host's calls are all there is
        call = np.arange(len(calls["start_ns"]))
        issue_ns = start_ns = calls["start_ns"]
        end_ns, carried_by = calls["end_ns"], [""] * len(call)
    else:
        doer = np.where(carrier >= 0, carrier, issues)
        start_ns, end_ns = transport["start_ns"][doer], transport["end_ns"][doer]
        carried_by = [vocabulary[code] for code in transport["name"][doer]]
    has_call = call >= 0
    kinds = [kind_of_c10d(vocabulary[code]).value for code in transport["name"][issues]] or [""] * len(call)
    kinds = [vocabulary[calls["collective"][c]] if c >= 0 else kind for c, kind in zip(call, kinds, strict=True)]
    size = np.where(has_call, calls["size_bytes"][call] if len(calls["size_bytes"]) else 0, -1)
    group = np.where(has_call, calls["group_size"][call] if len(calls["group_size"]) else 0, -1)
    unit = np.where(has_call, calls["unit"][call] if len(calls["unit"]) else NO_UNIT, NO_UNIT)
    step = clock.steps(issue_ns)
    phase_index = clock.phase_index(issue_ns)
    phase = clock.phase_names(phase_index)
    is_reduce = ~has_call & (np.array(kinds, object) == CollectiveKind.ALL_REDUCE.value)
    is_reduce &= phase == Phase.BACKWARD.value
    texts = {name: _of_calls(calls[name], call) for name in ("group", "group_description", "dtype")}
    _fill_buckets(log, is_reduce, step, phase_index, {"unit": unit, "size": size, "group_size": group, **texts})
    return {
        "kind": kinds,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "issue_ns": issue_ns,
        "step": step,
        "phase": list(phase),
        "unit": unit,
        "size_bytes": [int(s) if s >= 0 else None for s in size],
        "group_size": [int(g) if g >= 0 else None for g in group],
        "transport": carried_by,
        **{name: (codes, log.strings.texts) for name, codes in texts.items()},
    }


def _of_calls(codes: Array, call: Array) -> Array:
    """Words of the calls of each collective; the empty word where there is none."""
    return np.where(call >= 0, codes[call], 0) if len(codes) else np.zeros(len(call), np.int32)


def call_around(start: Array, end: Array, t_ns: Array) -> Array:
    """The host's call of torch.distributed that contains each time, -1 when none; calls do not overlap on a thread."""
    if len(start) == 0:
        return np.full(len(t_ns), -1, np.int64)
    order = np.argsort(start, kind="stable")
    candidate = order[np.maximum(np.searchsorted(start[order], t_ns, side="right") - 1, 0)]
    return np.where((start[candidate] <= t_ns) & (end[candidate] >= t_ns), candidate, -1)


def _fill_buckets(log: CaptureLog, is_reduce: Array, step: Array, backward: Array, columns: dict[str, Array]) -> None:
    """DDP's reducer reduces its buckets in their order: the k-th all-reduce of a backward is bucket k."""
    for number in np.unique(backward[is_reduce]):
        rows = np.flatnonzero(is_reduce & (backward == number))
        for bucket, row in zip(_layout(log, int(step[rows[0]]), len(rows)), rows.tolist(), strict=False):
            columns["unit"][row], columns["size"][row] = bucket["unit"], bucket["sharded_bytes"]
            columns["group_size"][row] = bucket["replicate_size"]
            for name in ("group", "group_description", "dtype"):
                columns[name][row] = log.strings.code(str(bucket.get(name, "")))


def _layout(log: CaptureLog, step: int, num_reduced: int) -> list[dict[str, Any]]:
    """The buckets of a backward with so many all-reduces: the first layout from its step on that fits.

    The reducer rebuilds its buckets at the second forward and reports it one step later. Where none fits (that step was
    never reached, unused parameters add an all-reduce, a comm hook makes its own) nothing is known: [].
    """
    later = [log.buckets[s] for s in sorted(log.buckets) if s >= step and log.buckets[s]]
    return next((buckets for buckets in later if len(buckets) == num_reduced), [])


def with_handed_over(log: CaptureLog) -> Array:
    """The allocator events' transport rows, with what was handed over to an operator joined to them.

    Functional collectives (tensor parallel meshes) allocate their result and give it to the operator they issue next.

    `DDP.__init__`, the bucket rebuild and the buffer sync copy tensors into one (`aten::cat`), broadcast it and drop
    it, at times on the transport's thread, where its free is not reported; see [Note: Unreported frees] in
    pairing. So whatever is allocated there and is no bucket belongs to the next broadcast of the region.
    """
    vocabulary = log.strings.texts
    transport = _with_functional(log)
    names = np.array([vocabulary[code] for code in log.transport["name"]], object)
    broadcasts = np.flatnonzero(names == "c10d::broadcast_")
    broadcasts = broadcasts[np.argsort(log.transport["start_ns"][broadcasts], kind="stable")]
    if BUCKET_REGION not in vocabulary or len(broadcasts) == 0:
        return transport
    is_region = log.spans["kind"] == vocabulary.index(BUCKET_REGION)
    begin, end = log.spans["start_ns"][is_region], log.spans["end_ns"][is_region]
    issue_ns = log.transport["start_ns"][broadcasts]
    t_ns, size = log.allocator["t_ns"], log.allocator["delta_bytes"]
    bucket_sizes = [bucket["sharded_bytes"] for layout in log.buckets.values() for bucket in layout]
    flat = vocabulary.index("aten::cat") if "aten::cat" in vocabulary else -1
    may_be = (log.allocator["operator"] == flat) | ~np.isin(size, bucket_sizes)
    for first, last in zip(begin, end, strict=True):
        rows = np.flatnonzero(may_be & (size > 0) & (transport < 0) & (t_ns >= first) & (t_ns < last))
        following = np.searchsorted(issue_ns, t_ns[rows])
        in_region = (following < len(issue_ns)) & (issue_ns[np.minimum(following, len(issue_ns) - 1)] < last)
        transport[rows[in_region]] = broadcasts[following[in_region]]
    return transport


def _with_functional(log: CaptureLog) -> Array:
    transport: Array = log.allocator["transport"].copy()
    is_word = np.array([word.startswith(FUNCTIONAL) for word in log.strings.texts], bool)
    issues, _ = carriers(log)
    rows = np.flatnonzero((transport < 0) & is_word[log.allocator["operator"]] & (log.allocator["delta_bytes"] > 0))
    following = np.searchsorted(log.transport["start_ns"][issues], log.allocator["t_ns"][rows])
    has_one = following < len(issues)
    transport[rows[has_one]] = issues[following[has_one]]
    return transport
