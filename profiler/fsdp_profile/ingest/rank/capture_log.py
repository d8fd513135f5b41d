"""Read the log that capture wrote for one rank: JSON lines to numpy columns; core/capture_log.py has the format.

A line cut short by the end of the process is dropped with a warning; everything before it is read.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from fsdp_profile.core.capture_log import (
    CPU_TABLES,
    FORMER_KINDS,
    HOOK_TABLES,
    PREEXISTING_BLOCKS,
    SAMPLE_TABLES,
    Record,
    Table,
    Type,
)
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.units import is_bucket

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

_TYPES: Final = {
    Type.INT: np.int64, Type.ADDRESS: np.uint64, Type.FLOAT: np.float64, Type.FLAG: np.bool_, Type.TEXT: np.int32,
    Type.CODE: np.int32,
}  # fmt: skip
_KINDS: Final = frozenset(record.value for record in Record)
_ADDED: Final = frozenset({"prefetch", "group", "group_description", "dtype", "site", "module"})
"""Columns that the first releases did not write: there they are empty."""


class StringTable:
    """Texts by code; code 0 is the empty text."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {"": 0}

    def code(self, text: str) -> int:
        """The code of a text; a new one when it is new."""
        return self._code.setdefault(text, len(self._code))

    def codes(self, texts: list[str]) -> Array:
        """The codes of many texts, int32."""
        return np.fromiter((self.code(text) for text in texts), np.int32, len(texts))

    @property
    def texts(self) -> list[str]:
        """All texts, by code."""
        return list(self._code)


@dataclass(kw_only=True, slots=True)
class CaptureLog:
    """What one rank's capture wrote. Text columns are codes into `strings`."""

    rank: dict[str, Any] = field(default_factory=dict)
    """Facts of the process."""
    end: dict[str, Any] | None = None
    """The closing record; None when the process was killed."""
    so_far: dict[str, Any] = field(default_factory=dict)
    """What the closing record would say, as far as it was known at the last flush."""
    failure: dict[str, Any] | None = None
    model: dict[str, Any] = field(default_factory=dict)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    """One description for each, at its first step."""
    first_forward_ns: int | None = None
    units: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The last description of every unit."""
    buckets: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Step -> DDP's buckets as they were described when it ended."""
    recorded_steps: set[int] = field(default_factory=set)
    """Steps whose allocator events were recorded to their end."""
    strings: StringTable = field(default_factory=StringTable)
    allocator: Columns = field(default_factory=dict)
    transport: Columns = field(default_factory=dict)
    operators: Columns = field(default_factory=dict)
    tags: Columns = field(default_factory=dict)
    spans: Columns = field(default_factory=dict)
    """With a column of its own: `prefetched`."""
    calls: Columns = field(default_factory=dict)
    phases: Columns = field(default_factory=dict)
    drops: Columns = field(default_factory=dict)
    preexisting: list[tuple[int, Columns]] = field(default_factory=list)
    """CPU, where the recording began late: t_ns, and the blocks that live tensors held then; twice."""
    step_ends: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    unrecorded_step_ends: list[int] = field(default_factory=list)
    """Ends of the steps after the window, in which nothing else was recorded."""
    has_exit: bool = False
    """The process came to its end by itself, which may be long after its recording did."""
    began_ns: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """When each chunk's recording began, in order; between a step's end and that moment the capture was writing."""
    device: dict[str, list[Any]] = field(default_factory=dict)
    losses: dict[str, list[Any]] = field(default_factory=dict)
    rewrapped: list[str] = field(default_factory=list)
    """What `run --as` did in place of what the script asked for."""
    host_states: dict[str, list[Any]] = field(default_factory=dict)
    """CUDA: what models and optimizers held on the host at each flush; with the step in a column of its own."""
    modules: dict[str, list[Any]] = field(default_factory=dict)
    """CUDA with stacks: capture_log.MODULE_CALLS."""
    cuda: list[dict[str, Any]] = field(default_factory=list)
    """Chunks of the CUDA allocator's history, in order."""
    warnings: list[str] = field(default_factory=list)


def read_capture_log(path: Path) -> CaptureLog:
    """The log as columns.

    Raises:
        InputError: the file cannot be read, holds no whole line, or a chunk lacks a column.
    """
    log = CaptureLog()
    reader = _Reader(log, path.name)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                reader.take_line(number, line)
    except OSError as e:
        raise InputError(f"{path}: cannot be read ({e.strerror or e})") from e
    if reader.num_records == 0:
        raise InputError(f"{path}: nothing readable in it; the rank ended before it recorded anything")
    reader.finish()
    return log


class _Reader:
    """Collects the parts of every table, record by record."""

    def __init__(self, log: CaptureLog, file: str) -> None:
        self._log = log
        self._file = file
        self._parts: dict[str, list[Columns]] = {name: [] for name in (*HOOK_TABLES, *CPU_TABLES)}
        self._step_ends: list[int] = []
        self._began_ns: list[int] = []
        self.num_records = 0

    def take_line(self, number: int, line: bytes) -> None:
        """Decode one line of the log."""
        try:
            record = msgspec.json.decode(line)
            if not isinstance(record, dict):
                raise msgspec.DecodeError("not an object")
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._log.warnings.append(
                f"{self._file}: line {number} is cut short (the process was killed, or the disk is full) and was "
                "dropped"
            )
            return
        self.num_records += 1
        kind = str(record.pop("kind", ""))
        known = FORMER_KINDS.get(kind, kind)
        if known in _KINDS:
            self._take(Record(known), record)
        else:
            self._log.warnings.append(f"unknown record {kind!r} ignored; it was written by a newer release")

    def _take(self, kind: Record, record: dict[str, Any]) -> None:
        log = self._log
        match kind:
            case Record.RANK:
                log.rank = record
            case Record.MODEL:
                log.model = log.model or record
            case Record.UNITS:
                log.units.update({int(row["unit"]): row for row in record["units"]})
            case Record.FIRST_FORWARD:
                log.first_forward_ns = int(record["t_ns"])
                log.so_far.update(record.get("facts", {}))
            case Record.PREEXISTING_BLOCKS:
                blocks = self._decode("preexisting blocks", PREEXISTING_BLOCKS, record)
                log.preexisting.append((int(record["t_ns"]), blocks))
            case Record.OPTIMIZER:
                log.optimizers.append(record)
            case Record.REWRAP:
                log.rewrapped.append(str(record["note"]))
            case Record.UNRECORDED_STEPS:
                log.unrecorded_step_ends = [int(end) for end in record["ends"]]
            case Record.FAILURE:
                log.failure = record
            case Record.END:
                log.end = record
            case Record.EXIT:
                log.has_exit = True
            case Record.CHUNK:
                self._take_chunk(record)

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        log, step = self._log, int(chunk["step"])
        if "began_ns" in chunk:
            self._began_ns.append(int(chunk["began_ns"]))
        self._step_ends += chunk["steps"]
        log.so_far.update(chunk.get("receipt", {}))
        log.buckets[step] = [unit for unit in log.units.values() if is_bucket(unit["kind"])]
        for name, table in HOOK_TABLES.items():
            self._parts[name].append(self._decode(name, table, chunk[name]))
        spans = self._parts["spans"][-1]
        # The first releases wrote a flag in place of the Prefetch.
        spans["prefetched"] = np.array(chunk["spans"].get("prefetched", spans["prefetch"] != 0), np.bool_)
        for name, table in SAMPLE_TABLES.items():
            columns = chunk.get(name) or {}
            for column in (column for column in table if column in columns):
                getattr(log, name).setdefault(column, []).extend(columns[column])
        if chunk.get("host_states"):
            log.host_states.setdefault("step", []).extend([step] * len(chunk["host_states"]["t_ns"]))
        if "cuda" in chunk:
            log.cuda += chunk["cuda"]
            log.recorded_steps.add(step)
        if "cpu" in chunk:
            if not chunk.get("in_step"):
                log.recorded_steps.add(step)
            self._take_cpu(chunk["cpu"])

    def _take_cpu(self, cpu: dict[str, Any]) -> None:
        codes = self._log.strings.codes(cpu["words"])
        num_before = sum(len(part["name"]) for part in self._parts["transport"])
        for name, table in CPU_TABLES.items():
            columns = self._decode(name, table, cpu[name])
            for column, type_ in table.items():
                if type_ is Type.CODE and len(columns[column]):
                    columns[column] = codes[columns[column]]
            self._parts[name].append(columns)
        allocator = self._parts["allocator"][-1]
        allocator["transport"] = np.where(allocator["transport"] >= 0, allocator["transport"] + num_before, -1)

    def _decode(self, name: str, table: Table, columns: dict[str, list[Any]]) -> Columns:
        num_rows = len(columns[next(iter(table))])
        found: Columns = {}
        for column, type_ in table.items():
            values = columns.get(column)
            if values is None and column not in _ADDED:
                raise InputError(f"{self._file}: a chunk has no column {column!r} of {name}; record the run again")
            if values is None:
                found[column] = np.zeros(num_rows, _TYPES[type_])
            elif type_ is Type.TEXT:
                found[column] = self._log.strings.codes(values)
            else:
                found[column] = np.array(values, _TYPES[type_])
        return found

    def finish(self) -> None:
        """Join the parts of every table."""
        tables = HOOK_TABLES | CPU_TABLES | {"spans": HOOK_TABLES["spans"] | {"prefetched": Type.FLAG}}
        for name, table in tables.items():
            parts = self._parts[name]
            columns = {
                column: np.concatenate([np.zeros(0, _TYPES[type_]), *(part[column] for part in parts)])
                for column, type_ in table.items()
            }
            setattr(self._log, name, columns)
        self._log.step_ends = np.array(self._step_ends, np.int64)
        self._log.began_ns = np.array(self._began_ns, np.int64)
