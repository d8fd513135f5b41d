"""Tables of one rank from a Kineto trace that others recorded.

A kernel belongs to the step in which the host launched it, a collective to that of its call: the device runs late,
and at a step's end its work is still running. A unit's sizes are those of its all-gather, padding included.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.schema import (
    NO_UNIT,
    SETUP_STEP,
    TEARDOWN_STEP,
    CollectiveKind,
    Phase,
    SpanKind,
    Strategy,
    UnitKind,
)
from fsdp_profile.ingest.imported.annotations import (
    Annotations,
    Array,
    Timeline,
    UnitMarks,
    strategy_of,
    timeline,
    unit_marks,
)
from fsdp_profile.ingest.kineto.launches import launch_column, launches_of_events
from fsdp_profile.ingest.kineto.names import C10D_PREFIX, GLOO_PREFIX, OPERATOR_CATEGORIES, PARAM_COMMS
from fsdp_profile.ingest.kineto.reader import Trace
from fsdp_profile.ingest.tables import make_table, numbers, words

_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "collective_comm")
_ANNOTATIONS: Final = ("ProfilerStep#", "Optimizer.step#", "autograd::engine::evaluate_function", "FSDP::",
                       "FullyShardedDataParallel.", "DistributedDataParallel.")  # fmt: skip
_COMMUNICATION: Final = (C10D_PREFIX, GLOO_PREFIX, "nccl:", PARAM_COMMS, "_c10d_functional::")
_ENCLOSING: Final = ("ProfilerStep#", "Optimizer.", "DistributedDataParallel.", "FullyShardedDataParallel.", "FSDP::",
                     "autograd::engine::evaluate_function", "PyTorch Profiler")  # fmt: skip
PHASES: Final = [str(phase) for phase in Phase]


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The tables of one file."""

    tables: dict[str, pa.Table]
    line: Timeline
    strategy: Strategy
    num_events: int
    is_device: bool
    is_whole: bool
    """Nothing of the file is missing."""


def import_trace(trace: Trace) -> Imported:
    """The tables that a Kineto trace allows: steps, phases, kernels, collectives, units, unit_spans."""
    events = trace.events
    annotations = _annotations(trace)
    start, end = numbers(events, "start_ns"), numbers(events, "end_ns")
    line = timeline(annotations, first_ns=int(start.min()), last_ns=int(end.max()))
    units = unit_marks(annotations)
    category, listed = words(events, "category")
    is_device = np.isin(category, [i for i, word in enumerate(listed) if word in _DEVICE_WORK])
    has_device = bool(is_device.any())
    collectives = make_table("collectives", _collectives(trace, line, units))
    kernels = _device_kernels(trace, line, is_device) if has_device else _host_operators(trace, line)
    return Imported(
        tables={
            **time_tables(line, is_cut=trace.is_cut, recorded=False),
            "kernels": make_table("kernels", kernels),
            "collectives": collectives,
            **unit_tables(units, line, collectives),
        },
        line=line,
        strategy=strategy_of(annotations),
        num_events=trace.num_events,
        is_device=has_device,
        is_whole=not trace.is_cut and not trace.num_dropped,
    )


def unit_tables(units: UnitMarks, line: Timeline, collectives: pa.Table | None) -> dict[str, pa.Table]:
    """Tables `units` and `unit_spans`; sizes from the units' all-gathers, 0 where there is none.

    There are no UNSHARDED spans: no annotation records when a unit is resharded after its forward.
    """
    gathers: dict[int, dict[str, Any]] = {}
    if collectives is not None:
        for row in collectives.select(["kind", "unit", "size_bytes", "group_size", "dtype"]).to_pylist():
            if row["kind"] == CollectiveKind.ALL_GATHER.value and row["unit"] != NO_UNIT:
                gathers.setdefault(row["unit"], row)
    rows = [_unit(number, name, gathers.get(number, {})) for number, name in enumerate(units.names)]
    spans = [
        (int(unit), str(kind), int(start), int(end), 0, False)
        for unit, kind, start, end in zip(units.unit, units.kind, units.start_ns, units.end_ns, strict=True)
    ]
    spans.sort(key=lambda span: span[2])
    start = np.array([span[2] for span in spans], np.int64)
    columns = [list(column) for column in zip(*spans, strict=True)] or [[]] * 6
    return {
        "units": make_table("units", {key: [row[key] for row in rows] for key in _unit(0, "", {})}),
        "unit_spans": make_table(
            "unit_spans",
            {
                "unit": columns[0],
                "kind": columns[1],
                "step": line.steps(start),
                "phase": (line.phase_codes(start), PHASES),
                "start_ns": start,
                "end_ns": columns[3],
                "size_bytes": columns[4],
                "prefetched": columns[5],
            },
        ),
    }


def _unit(number: int, name: str, gather: dict[str, Any]) -> dict[str, Any]:
    size, ranks, dtype = gather.get("size_bytes") or 0, gather.get("group_size") or 1, gather.get("dtype") or ""
    bits = re.search(r"\d+", dtype)
    return {
        "unit": number,
        "name": name,
        "kind": UnitKind.FSDP2,
        "numel": size * 8 // int(bits[0]) if bits else 0,
        "num_params": 0,
        "sharded_bytes": size // ranks,
        "unsharded_bytes": size,
        "dtype": "",
        "compute_dtype": dtype,
        "shard_size": ranks,
        "replicate_size": 1,
        "reshard_after_forward": "",
        "sharding": "",
    }


def _annotations(trace: Trace) -> Annotations:
    events = trace.events
    (name, names), (category, categories) = words(events, "name"), words(events, "category")
    is_host = np.isin(category, [i for i, w in enumerate(categories) if w in OPERATOR_CATEGORIES or not w])
    wanted = np.array([n.startswith(_ANNOTATIONS) for n in names] or [False], np.bool_)
    rows = np.flatnonzero(is_host & wanted[name])
    rows = rows[np.argsort(numbers(events, "start_ns")[rows], kind="stable")]
    start, end = (numbers(events, column)[rows] for column in ("start_ns", "end_ns"))
    return Annotations(names=names, name=name[rows], start_ns=start, end_ns=end)


def time_tables(line: Timeline, *, is_cut: bool, recorded: bool, known: pa.Table | None = None) -> dict[str, pa.Table]:
    """Tables `steps` and `phases`; `known` steps keep what they say of being complete."""
    rows = [(int(n), int(a), int(b), line.is_annotated) for n, a, b in zip(line.step, line.start_ns, line.end_ns,
                                                                           strict=True)]  # fmt: skip
    if is_cut:
        rows[-1] = (*rows[-1][:3], False)
    if line.first_ns < rows[0][1]:
        rows.insert(0, (SETUP_STEP, line.first_ns, rows[0][1], True))
    if line.last_ns > rows[-1][2]:
        rows.append((TEARDOWN_STEP, rows[-1][2], line.last_ns, False))
    complete = [row[3] for row in rows] if known is None else known.column("complete").to_pylist()
    moments = np.unique(np.concatenate([line.phase_start_ns, [t for row in rows for t in row[1:3]]]))
    begin, end = moments[:-1], moments[1:]
    middle = begin + (end - begin) // 2
    return {
        "steps": make_table(
            "steps",
            {
                "step": [row[0] for row in rows],
                "start_ns": [row[1] for row in rows],
                "end_ns": [row[2] for row in rows],
                "complete": complete,
                "recorded": [recorded] * len(rows),
            },
        ),
        "phases": make_table(
            "phases",
            {
                "step": line.steps(middle),
                "phase": (line.phase_codes(middle), PHASES),
                "start_ns": begin,
                "end_ns": end,
            },
        ),
    }


def _collectives(trace: Trace, line: Timeline, units: UnitMarks) -> dict[str, Any]:
    found = trace.collectives
    event = numbers(found, "event")
    start = numbers(trace.events, "start_ns")[event]
    told = found.column("issue_ns")
    issue = np.where(told.is_valid().to_numpy(), told.fill_null(0).to_numpy(), start)
    return {
        **{name: found.column(name) for name in ("kind", "size_bytes", "group_size", "transport")},
        **{name: found.column(name).to_pylist() for name in ("group", "group_description", "dtype")},
        "sequence": found.column("seq"),
        "start_ns": start,
        "end_ns": numbers(trace.events, "end_ns")[event],
        "issue_ns": issue,
        "step": line.steps(issue),
        "phase": (line.phase_codes(issue), PHASES),
        "unit": units.around(issue, SpanKind.ALL_GATHER, SpanKind.REDUCE),
        "launch_ns": launch_column(trace, event),
    }


def _device_kernels(trace: Trace, line: Timeline, is_device: Array) -> dict[str, Any]:
    """Device work that is no communication."""
    events = trace.events
    keep = is_device.copy()
    keep[numbers(trace.collectives, "event")] = False
    rows = np.flatnonzero(keep)
    start = numbers(events, "start_ns")
    launcher, is_known = launches_of_events(trace, rows)
    at = np.where(is_known, start[launcher], start[rows])
    name, names = words(events, "name")
    return {
        "name": (name[rows], names),
        "start_ns": start[rows],
        "end_ns": numbers(events, "end_ns")[rows],
        "stream": numbers(events, "stream")[rows],
        "step": line.steps(at),
        "launch_ns": launch_column(trace, rows),
    }


def _host_operators(trace: Trace, line: Timeline) -> dict[str, Any]:
    """Of a trace without a device: outermost operators that are no communication, of the busiest thread."""
    events = trace.events
    (name, names), (category, categories) = words(events, "name"), words(events, "category")
    is_operator = np.isin(category, [i for i, word in enumerate(categories) if word in OPERATOR_CATEGORIES])
    other = np.array([n.startswith((*_COMMUNICATION, *_ENCLOSING)) for n in names] or [False], np.bool_)
    rows = np.flatnonzero(is_operator & ~other[name])
    thread = numbers(events, "thread")[rows]
    if len(rows):
        threads, counts = np.unique(thread, return_counts=True)
        rows = rows[thread == threads[np.argmax(counts)]]
    start, end = numbers(events, "start_ns"), numbers(events, "end_ns")
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    if len(rows):
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end[rows])[:-1]])
        rows = rows[start[rows] >= before]
    return {
        "name": (name[rows], names),
        "start_ns": start[rows],
        "end_ns": end[rows],
        "stream": numbers(events, "thread")[rows],
        "step": line.steps(start[rows]),
    }
