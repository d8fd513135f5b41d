"""The collectives of a trace: one row per communication kernel or gloo transport, with the call behind it.

[Note: What a collective is called]
A kernel's own arguments say what it is, else those of the `record_param_comms` that launched it (found by the
launch, else by External id), else the `nccl:` annotation around the launch, else the kernel's name. What no
source records is OTHER or null. Gloo is in kineto/gloo.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.ingest.kineto.calls import Call, Found, Rows, call_from, inputs_of, is_collective, size_bytes
from fsdp_profile.ingest.kineto.columns import NONE, Int64s
from fsdp_profile.ingest.kineto.gloo import gloo_collectives
from fsdp_profile.ingest.kineto.metadata import ProcessGroup
from fsdp_profile.ingest.kineto.names import (
    GLOO_PREFIX,
    HOST_CATEGORIES,
    KERNEL_CATEGORIES,
    LAUNCH_CATEGORIES,
    NCCL_PREFIX,
    PARAM_COMMS,
    collective_kind,
    dtype_of,
    kernel_kind,
)

MAX_NESTED: Final = 8
"""Calls on one thread looked at for the one around a launch."""

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
COLLECTIVES: Final = pa.schema(
    [
        pa.field("event", pa.int64(), nullable=False),
        pa.field("kind", _WORDS, nullable=False),
        pa.field("dtype", _WORDS),
        pa.field("in_numel", pa.int64()),
        pa.field("out_numel", pa.int64()),
        pa.field("size_bytes", pa.int64()),
        pa.field("group_size", pa.int32()),
        pa.field("group", _WORDS),
        pa.field("group_description", _WORDS),
        pa.field("seq", pa.int64()),
        pa.field("is_device", pa.bool_(), nullable=False),
        pa.field("issue_ns", pa.int64()),
        pa.field("transport", _WORDS, nullable=False),
    ]
)


def collectives_table(rows: Rows, groups: Iterable[ProcessGroup]) -> pa.Table:
    """One row per collective, by start.

    Columns: event int64 (row of the events), kind string (CollectiveKind), dtype string or null (torch's
    name), in_numel, out_numel int64 or null, size_bytes int64 or null (of the whole array: gather output,
    scatter input, reduced tensor), group_size int32 or null, group, group_description string or null, seq
    int64 or null, is_device bool, issue_ns int64 or null (start of the host's call), transport string (the
    kernel, or the transport's operation).
    """
    by_name = {group.name: group for group in groups}
    found = [*_device_collectives(rows), *gloo_collectives(rows)]
    found.sort(key=lambda item: int(rows.start_ns[item[0]]))
    listed = [(row, _with_group(call, by_name), issue) for row, call, issue in found]
    is_device = [not rows.name_of(row).startswith(GLOO_PREFIX) for row, _, _ in listed]
    columns: dict[str, list[Any]] = {
        "event": [row for row, _, _ in listed],
        "kind": [str(call.kind) for _, call, _ in listed],
        **{
            name: [getattr(call, name) for _, call, _ in listed] for name in Call.__dataclass_fields__ if name != "kind"
        },
        "dtype": [None if c.dtype is None else dtype_of(c.dtype)[0] for _, c, _ in listed],
        "size_bytes": [size_bytes(call) for _, call, _ in listed],
        "is_device": is_device,
        "issue_ns": [None if issue is None else int(rows.start_ns[issue]) for _, _, issue in listed],
        "transport": [rows.name_of(row) for row, _, _ in listed],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in COLLECTIVES], schema=COLLECTIVES)


def _device_collectives(rows: Rows) -> list[Found]:
    kinds = [kernel_kind(word) for word in rows.words]
    named = np.array([kind is not None for kind in kinds], np.bool_)[rows.name]
    named[list(rows.params)] = True
    in_kernel = np.array([word.lower() in KERNEL_CATEGORIES for word in rows.words], np.bool_)[rows.category]
    kernels = rows.by_start(named & in_kernel)
    if not len(kernels):
        return []
    finder = _CallFinder(rows, kernels)
    found: list[Found] = []
    for row in kernels.tolist():
        call_row, launch = finder.call_of(row)
        own = rows.params.get(row)
        if own is not None:
            call = call_from(own)
        elif call_row is not None and call_row in rows.params:
            call = call_from(rows.params[call_row])
        else:
            call = _annotated(rows, call_row, kinds[rows.name[row]])
        found.append((row, call, call_row if call_row is not None else launch))
    return found


class _CallFinder:
    """Finds the host's call that launched a kernel."""

    def __init__(self, rows: Rows, kernels: Int64s) -> None:
        self._rows = rows
        wanted = np.unique(rows.correlation[kernels])
        is_launch = np.array([w.lower() in LAUNCH_CATEGORIES for w in rows.words], np.bool_)[rows.category]
        launches = np.flatnonzero(is_launch & np.isin(rows.correlation, wanted[wanted != NONE]))
        self._launch_of = dict(zip(rows.correlation[launches].tolist(), launches.tolist(), strict=True))
        calls = rows.where(name=lambda n: n == PARAM_COMMS, category=HOST_CATEGORIES.__contains__)
        calls = np.array([r for r in calls.tolist() if is_collective(rows.params.get(r))], np.int64)
        annotations = rows.where(name=lambda n: n.startswith(NCCL_PREFIX), category=lambda c: c in HOST_CATEGORIES)
        self._around = [_ByThread(rows, calls), _ByThread(rows, annotations)]
        self._call_of_id = dict(zip(rows.external_id[calls].tolist(), calls.tolist(), strict=True))
        self._call_of_id.pop(NONE, None)

    def call_of(self, kernel: int) -> tuple[int | None, int | None]:
        """The `record_param_comms`, else the annotation, behind a kernel; and its launch."""
        rows = self._rows
        launch = self._launch_of.get(int(rows.correlation[kernel]))
        calls, annotations = self._around
        found = None if launch is None else calls.around(launch)
        if found is None:
            found = self._call_of_id.get(int(rows.external_id[kernel]))
            # Old traces have the correlation as External id: it may be that of another call.
            if found is not None and rows.start_ns[found] > rows.end_ns[kernel]:
                found = None
        if found is None and launch is not None:
            found = annotations.around(launch)
        return found, launch


class _ByThread:
    """Calls by thread and start, to look up the innermost one around another event."""

    def __init__(self, rows: Rows, calls: Int64s) -> None:
        self._rows = rows
        self._of_thread = {int(t): calls[rows.thread[calls] == t] for t in np.unique(rows.thread[calls])}

    def around(self, event: int) -> int | None:
        rows = self._rows
        calls = self._of_thread.get(int(rows.thread[event]))
        if calls is None:
            return None
        start = rows.start_ns[event]
        last = int(np.searchsorted(rows.start_ns[calls], start, "right"))
        for row in calls[max(0, last - MAX_NESTED) : last][::-1].tolist():
            if rows.end_ns[row] >= start:
                return int(row)
        return None


def _annotated(rows: Rows, annotation: int | None, kind: CollectiveKind | None) -> Call:
    """From an `nccl:` annotation, else from the kernel's name."""
    if annotation is None:
        return Call(kind=kind or CollectiveKind.OTHER)
    word = rows.name_of(annotation).removeprefix(NCCL_PREFIX)
    numels, types = inputs_of(rows.shapes.get(annotation))
    known = collective_kind(word) or CollectiveKind.OTHER
    return Call(
        kind=known if known is not CollectiveKind.OTHER else kind or known,
        dtype=types[0] or None if types else None,
        in_numel=numels[0] if numels else None,
    )


def _with_group(call: Call, groups: Mapping[str, ProcessGroup]) -> Call:
    """Complete the groups from the file's list of process groups; a file with one group only means that one."""
    name = call.group
    if name is None and len(groups) == 1:
        name = next(iter(groups))
    group = groups.get(name or "")
    if group is None:
        return call
    is_described = call.group_description not in (None, "", "undefined")
    return replace(
        call,
        group=name,
        group_size=call.group_size if call.group_size is not None else group.size,
        group_description=call.group_description if is_described else group.description,
    )
