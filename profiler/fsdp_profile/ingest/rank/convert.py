"""Turn what capture wrote for one rank into tables. Runs outside the training process, once per rank.

A rank whose log is damaged or whose events do not fit still gives every table that can be made.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import KINETO_TRACE
from fsdp_profile.core.errors import InputError, OutputError
from fsdp_profile.ingest.kineto.reader import Trace
from fsdp_profile.ingest.memory_pyramid import MIN_EVENTS, pyramid_columns
from fsdp_profile.ingest.rank.attribution import Clock, make_clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog, read_capture_log
from fsdp_profile.ingest.rank.communication import collective_columns
from fsdp_profile.ingest.rank.cuda_ledger import device_history, ledger_of_history, ring_warnings
from fsdp_profile.ingest.rank.device_trace import device_collective_columns, kernel_columns, read_device_trace
from fsdp_profile.ingest.rank.memory import allocation_columns, cpu_ledger, oom_columns, sample_columns
from fsdp_profile.ingest.rank.pairing import Ledger
from fsdp_profile.ingest.rank.steps import phase_columns, step_columns
from fsdp_profile.ingest.rank.units import unit_columns, unit_span_columns
from fsdp_profile.ingest.snapshot.segments import pool_tables
from fsdp_profile.ingest.tables import make_table, write_table


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
    """The Kineto trace of a CUDA rank; None when there is none, or it is damaged beyond use (with a warning)."""
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
    ledger = ledger_of_history(history, log.strings, calls=log.modules) if history is not None else cpu_ledger(log)
    log.warnings += ring_warnings(log.cuda)
    last_ns = _last_ns(log, ledger)
    add("steps", lambda: step_columns(log, clock, last_ns))
    add("phases", lambda: phase_columns(log, clock, last_ns))
    add("units", lambda: unit_columns(log))
    if device_trace is not None:
        found_trace = device_trace
        log.warnings += device_trace.warnings
        add("collectives", lambda: device_collective_columns(found_trace, log, clock))
        add("kernels", lambda: kernel_columns(found_trace, clock))
    else:
        add("collectives", lambda: collective_columns(log, clock))
        add("kernels", lambda: _kernels(log, clock))
    add("unit_spans", lambda: unit_span_columns(log, clock, tables.get("collectives")))
    add("device_samples", lambda: _device_samples(log))
    if log.host_states:
        add("host_states", lambda: log.host_states)
    add("tags", lambda: _tags(log))
    if log.losses.get("loss"):
        add("losses", lambda: _losses(log))
    if ledger is not None:
        found = ledger
        log.warnings += ledger.warnings
        add("memory_samples", lambda: sample_columns(found, clock))
        add("allocations", lambda: allocation_columns(log, found, clock))
        add("ooms", lambda: oom_columns(log, found.samples))
    if {"memory_samples", "allocations"} <= set(tables) and tables["memory_samples"].num_rows >= MIN_EVENTS:
        add("memory_pyramid", lambda: pyramid_columns(tables["memory_samples"], tables["allocations"]))
    if history is not None:
        of_pools = pool_tables(history)
        if of_pools["ooms"].num_rows == 0:  # the history may have been cut before the failure
            del of_pools["ooms"]
        tables |= of_pools
    return tables


def _last_ns(log: CaptureLog, ledger: Ledger | None) -> int:
    """The end of the recording: the latest time that was recorded."""
    moments = [int(log.end["t_ns"])] if log.end else []
    if ledger is not None and len(ledger.samples.t_ns):
        moments.append(int(ledger.samples.t_ns[-1]))
    for values in (log.phases["t_ns"], log.step_ends, log.spans["end_ns"], np.array(log.device.get("t_ns", []))):
        moments += [int(values.max())] if len(values) else []
    return max(moments, default=int(log.rank.get("start_ns", 0)))


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
