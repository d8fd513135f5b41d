"""Turn what capture wrote for one rank into tables. Runs outside the training process, once per rank.

A rank whose log is damaged or whose events do not fit still gives every table that can be made.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import KINETO_TRACE, REGIONS, EndReason
from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.core.errors import InputError, OutputError
from fsdp_profile.core.schema import NOT_FREED, SETUP_STEP, TABLES, TEARDOWN_STEP, Basis, Phase, SpanKind
from fsdp_profile.core.units import is_bucket
from fsdp_profile.ingest.kineto.reader import Trace
from fsdp_profile.ingest.memory_pyramid import MIN_EVENTS, pyramid_columns
from fsdp_profile.ingest.rank.attribution import Clock, Parts, attribute, make_clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog, read_capture_log
from fsdp_profile.ingest.rank.communication import collective_columns, transport_ends_ns, with_handed_over
from fsdp_profile.ingest.rank.cuda_ledger import device_history, ledger_of_history, ring_warnings
from fsdp_profile.ingest.rank.device_trace import device_collective_columns, kernel_columns, read_device_trace
from fsdp_profile.ingest.rank.failed_allocation import oom_columns
from fsdp_profile.ingest.rank.pairing import Ledger, pair_cpu_events
from fsdp_profile.ingest.rank.preexisting import with_held
from fsdp_profile.ingest.snapshot.segments import pool_tables
from fsdp_profile.ingest.tables import make_table, write_table

Array = np.ndarray[Any, Any]


def convert_rank(run_dir: Path, rank: int) -> CaptureLog:
    """Write every table of a rank that its log allows; returns the log, with its warnings.

    Raises:
        InputError: the log holds nothing readable.
        OutputError: the tables cannot be written.
    """
    log, tables = read_rank(run_dir, rank)
    try:
        for name, table in tables.items():
            write_table(layout.table_path(run_dir, rank, name), table)
    except OSError as e:
        raise OutputError(f"{layout.rank_dir(run_dir, rank)}: cannot write ({e.strerror or e})") from e
    return log


def read_rank(run_dir: Path, rank: int) -> tuple[CaptureLog, dict[str, pa.Table]]:
    """A rank's log and its tables, nothing written: for a run in a folder that is full or read-only.

    Raises:
        InputError: the log holds nothing readable.
    """
    log = read_capture_log(layout.capture_log(run_dir, rank))
    trace = _device_trace(layout.raw_dir(run_dir, rank) / KINETO_TRACE, rank, log)
    return log, rank_tables(log, device_trace=trace)


def _device_trace(path: Path, rank: int, log: CaptureLog) -> Trace | None:
    """The Kineto trace of a CUDA rank; None when there is none, or it is damaged beyond use (which is said)."""
    if not path.exists():
        return None
    try:
        return read_device_trace(path, rank)
    except InputError as e:
        log.warnings.append(f"kernels and collectives are not in the tables: {e}")
        return None


def rank_tables(log: CaptureLog, *, device_trace: Trace | None = None) -> dict[str, pa.Table]:
    """The tables of one rank by name, in the schema's columns; with the Kineto trace of a CUDA rank."""
    clock = make_clock(log)
    tables: dict[str, pa.Table] = {}

    def add(name: str, columns: Callable[[], dict[str, Any]]) -> None:
        try:
            tables[name] = make_table(name, columns())
        except (KeyError, IndexError, ValueError, pa.ArrowException) as e:
            log.warnings.append(f"{name}: not written ({type(e).__name__}: {e}); please report this")

    history = device_history(log.cuda)
    ledger = ledger_of_history(history, log.strings, calls=log.modules) if history is not None else _ledger(log)
    log.warnings += ring_warnings(log.cuda)
    last_ns = _last_ns(log, ledger)
    add("steps", lambda: _steps(log, clock, last_ns))
    add("phases", lambda: _phases(log, clock, last_ns))
    add("units", lambda: _units(log))
    if device_trace is not None:
        found_trace = device_trace
        log.warnings += device_trace.warnings
        add("collectives", lambda: device_collective_columns(found_trace, log, clock))
        add("kernels", lambda: kernel_columns(found_trace, clock))
    else:
        add("collectives", lambda: collective_columns(log, clock))
        add("kernels", lambda: _kernels(log, clock))
    add("unit_spans", lambda: _unit_spans(log, clock, tables.get("collectives")))
    add("device_samples", lambda: _device_samples(log))
    if log.host_states:
        add("host_states", lambda: log.host_states)
    add("tags", lambda: _tags(log))
    if log.losses.get("loss"):
        add("losses", lambda: _losses(log))
    if ledger is not None:
        found = ledger
        log.warnings += ledger.warnings
        add("memory_samples", lambda: _memory_samples(found, clock))
        add("allocations", lambda: _allocations(log, found, clock))
        add("ooms", lambda: oom_columns(log, found.samples))
    if {"memory_samples", "allocations"} <= set(tables) and tables["memory_samples"].num_rows >= MIN_EVENTS:
        add("memory_pyramid", lambda: pyramid_columns(tables["memory_samples"], tables["allocations"]))
    if history is not None:
        of_pools = pool_tables(history)
        if of_pools["ooms"].num_rows == 0:  # the history may have been cut before the failure
            del of_pools["ooms"]
        tables |= of_pools
    return tables


def _ledger(log: CaptureLog) -> Ledger | None:
    if len(log.allocator["t_ns"]) == 0:
        return None
    events = {**log.allocator, "transport": with_handed_over(log)}
    events = with_held(events, log.preexisting)
    return pair_cpu_events(**events, transport_end_ns=transport_ends_ns(log), drops=log.drops, tags=log.tags)


def _last_ns(log: CaptureLog, ledger: Ledger | None) -> int:
    """The end of the recording: the latest moment anything tells of."""
    moments = [int(log.end["t_ns"])] if log.end else []
    if ledger is not None and len(ledger.samples.t_ns):
        moments.append(int(ledger.samples.t_ns[-1]))
    for values in (log.phases["t_ns"], log.step_ends, log.spans["end_ns"], np.array(log.device.get("t_ns", []))):
        moments += [int(values.max())] if len(values) else []
    return max(moments, default=int(log.rank.get("start_ns", 0)))


def _steps(log: CaptureLog, clock: Clock, last_ns: int) -> dict[str, Any]:
    start = int(log.rank.get("start_ns", clock.phase_start_ns[0]))
    first = clock.first_forward_ns
    rows: list[tuple[int, int, int, bool]] = [(SETUP_STEP, start, first if first is not None else last_ns, True)]
    begin = first
    if begin is not None:
        for step, end in enumerate(clock.step_end_ns.tolist()):
            rows.append((step, begin, end, True))
            begin = _resumed_after(log, end)
        ended_by_window = log.end is not None and log.end.get("reason") == EndReason.WINDOW_ENDED
        if begin < last_ns and not ended_by_window:
            rows.append((int(clock.steps(np.array([last_ns]))[0]), begin, last_ns, False))
    return {
        "step": [r[0] for r in rows],
        "start_ns": [r[1] for r in rows],
        "end_ns": [r[2] for r in rows],
        "complete": [r[3] for r in rows],
        "recorded": [_is_recorded(log, r[0]) for r in rows],
    }


def _resumed_after(log: CaptureLog, step_end_ns: int) -> int:
    """When the recording went on after a step: at once, or after the pause in which the capture wrote.

    That pause is ours and belongs to no step.
    """
    following = log.began_ns[log.began_ns > step_end_ns]
    next_end = log.step_ends[log.step_ends > step_end_ns]
    is_next = len(following) and (len(next_end) == 0 or following[0] < next_end[0])
    return int(following[0]) if is_next else step_end_ns


def _is_recorded(log: CaptureLog, step: int) -> bool:
    """A chunk may span steps: the one written after a step holds it; what follows the last is whole at an end only."""
    if step == TEARDOWN_STEP:
        return log.end is not None
    return any(recorded >= step for recorded in log.recorded_steps)


def _phases(log: CaptureLog, clock: Clock, last_ns: int) -> dict[str, Any]:
    """Phases cut at the steps' ends, so that each row lies in one step; the pauses after steps are in none."""
    start = clock.phase_start_ns
    ends = clock.step_end_ns[(clock.step_end_ns > start[0]) & (clock.step_end_ns < last_ns)]
    resumed = np.array([_resumed_after(log, end) for end in ends.tolist()], np.int64)
    paused = ends[resumed > ends]
    inner = np.unique(np.concatenate([ends, resumed]))
    index = np.concatenate([np.arange(len(start)), clock.phase_index(inner)])
    begin = np.concatenate([start, inner])
    order = np.argsort(begin, kind="stable")
    begin, index = begin[order], index[order]
    end = np.append(begin[1:], max(last_ns, int(begin[-1])))
    keep = (end > begin) & ~np.isin(begin, paused)
    # A phase that starts with a step belongs to it, not to the one that ended there.
    return {
        "step": clock.steps(begin + 1)[keep],
        "phase": list(clock.phase_names(index)[keep]),
        "start_ns": begin[keep],
        "end_ns": end[keep],
    }


def _units(log: CaptureLog) -> dict[str, Any]:
    rows = [log.units[unit] for unit in sorted(log.units)]
    described = [column.name for column in TABLES["units"] if column.name not in ("unit", "trainable_numel")]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in described}
    columns["name"] = _distinct([row["name"] for row in rows])
    if any(row.get("trainable_numel") is not None for row in rows):
        columns["trainable_numel"] = [row.get("trainable_numel") for row in rows]
    return {"unit": sorted(log.units), **columns}


def _distinct(names: list[str]) -> list[str]:
    """Names of units, told apart where a module has several groups: 'layers.0', 'layers.0#2'."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def _unit_spans(log: CaptureLog, clock: Clock, collectives: pa.Table | None) -> dict[str, Any]:
    vocabulary = log.strings.texts
    spans = log.spans
    kind = np.array([vocabulary[code] for code in spans["kind"]], object)
    keep = ~np.isin(kind.astype(str), REGIONS)
    rows = [
        (int(u), str(k), int(a), int(b), int(size), bool(early), vocabulary[word])
        for u, k, a, b, size, early, word in zip(
            spans["unit"][keep], kind[keep], spans["start_ns"][keep], spans["end_ns"][keep],
            spans["size_bytes"][keep], spans["prefetched"][keep], spans["prefetch"][keep], strict=True,
        )
    ]  # fmt: skip
    rows += _unsharded_spans(rows)
    rows += _bucket_spans(log, collectives)
    rows.sort(key=lambda row: row[2])
    start = np.array([row[2] for row in rows], np.int64)
    return {
        "unit": [row[0] for row in rows],
        "kind": [row[1] for row in rows],
        "step": clock.steps(start),
        "phase": list(clock.phase_names(clock.phase_index(start))),
        "start_ns": start,
        "end_ns": [row[3] for row in rows],
        "size_bytes": [row[4] for row in rows],
        "prefetched": [row[5] for row in rows],
        "prefetch": [row[6] for row in rows],
    }


_Span = tuple[int, str, int, int, int, bool, str]


def _unsharded_spans(rows: list[_Span]) -> list[_Span]:
    """From a unit's all-gather to its next reshard; a gather of what is gathered already adds nothing."""
    found: list[_Span] = []
    open_since: dict[int, _Span] = {}
    marks = (SpanKind.ALL_GATHER.value, SpanKind.RESHARD.value)
    for row in sorted((r for r in rows if r[1] in marks), key=lambda r: r[2]):
        if row[1] == SpanKind.ALL_GATHER.value:
            open_since.setdefault(row[0], row)
        elif (since := open_since.pop(row[0], None)) is not None:
            found.append((row[0], SpanKind.UNSHARDED.value, since[2], row[3], row[4], *since[5:]))
    for unit, since in open_since.items():
        found.append((unit, SpanKind.UNSHARDED.value, since[2], NOT_FREED, since[4], *since[5:]))
    return found


def _bucket_spans(log: CaptureLog, collectives: pa.Table | None) -> list[_Span]:
    """All-reduces of DDP's buckets: the reducer has no hook, so they come from the collectives."""
    buckets = {unit for unit, row in log.units.items() if is_bucket(row["kind"])}
    if collectives is None or not buckets:
        return []
    return [
        (row["unit"], SpanKind.ALL_REDUCE.value, row["issue_ns"], row["end_ns"], row["size_bytes"] or 0, False, "")
        for row in collectives.select(["unit", "issue_ns", "end_ns", "size_bytes"]).to_pylist()
        if row["unit"] in buckets
    ]


def _kernels(log: CaptureLog, clock: Clock) -> dict[str, Any]:
    operators = log.operators
    return {
        "name": (operators["name"], log.strings.texts),
        "start_ns": operators["start_ns"],
        "end_ns": operators["end_ns"],
        "stream": operators["thread"],
        "step": clock.steps(operators["start_ns"]),
    }


def _device_samples(log: CaptureLog) -> dict[str, Any]:
    return {"t_ns": log.device.get("t_ns", []), **{k: v for k, v in log.device.items() if k != "t_ns"}}


def _tags(log: CaptureLog) -> dict[str, Any]:
    tags = log.tags
    text = {column: (tags[column], log.strings.texts) for column in ("category", "name")}
    return {**tags, **text}


def _losses(log: CaptureLog) -> dict[str, Any]:
    step = np.array(log.losses["step"], np.int64)
    first = np.searchsorted(step, step)  # steps come in order: rows since the step's first
    return {"step": step, "micro_step": np.arange(len(step)) - first, "loss": log.losses["loss"]}


def _memory_samples(ledger: Ledger, clock: Clock) -> dict[str, Any]:
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


def _allocations(log: CaptureLog, ledger: Ledger, clock: Clock) -> dict[str, Any]:
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
