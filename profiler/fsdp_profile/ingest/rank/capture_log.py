"""Read the log that capture wrote for one rank: JSON lines to numpy columns.

A line cut short by the end of the process is dropped and said; everything before it is kept.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fsdp_profile.core.errors import InputError

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

_TYPES = {"address": np.uint64, "prefetched": np.bool_, "weak": np.bool_}
_TEXT = frozenset(
    {"category", "name", "kind", "collective", "phase", "group", "group_description", "dtype", "prefetch"}
)


class Words:
    """Text to codes; code 0 is the empty text."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {"": 0}

    def code(self, word: str) -> int:
        """The word's code."""
        return self._code.setdefault(word, len(self._code))

    def codes(self, words: list[str]) -> Array:
        """The codes of many words, int32."""
        return np.fromiter((self.code(w) for w in words), np.int32, len(words))

    @property
    def list(self) -> list[str]:
        """All words, by code."""
        return list(self._code)


@dataclass(kw_only=True, slots=True)
class CaptureLog:
    """What one rank's capture wrote. Text columns are codes into `words`."""

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
    words: Words = field(default_factory=Words)
    allocator: Columns = field(default_factory=dict)
    transport: Columns = field(default_factory=dict)
    operators: Columns = field(default_factory=dict)
    tags: Columns = field(default_factory=dict)
    spans: Columns = field(default_factory=dict)
    calls: Columns = field(default_factory=dict)
    phases: Columns = field(default_factory=dict)
    drops: Columns = field(default_factory=dict)
    held: list[tuple[int, Columns]] = field(default_factory=list)
    """CPU, where the recording began late: t_ns, and address and size_bytes of what tensors held then, twice."""
    step_ends: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    bare_step_ends: list[int] = field(default_factory=list)
    """Ends of the steps after the window, in which nothing was recorded."""
    has_exit: bool = False
    """The process came to its end by itself, which may be long after its recording did."""
    began_ns: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """When each chunk's recording began, in order; between a step's end and that moment the capture was writing."""
    device: dict[str, list[Any]] = field(default_factory=dict)
    losses: dict[str, list[Any]] = field(default_factory=lambda: {"step": [], "loss": []})
    rewrapped: list[str] = field(default_factory=list)
    """What `run --as` did in place of what the script asked for."""
    host_states: dict[str, list[Any]] = field(default_factory=dict)
    """CUDA: what models and optimizers held on the host at each flush; with the step in a column of its own."""
    module_calls: dict[str, list[Any]] = field(default_factory=dict)
    """CUDA with stacks: path, start_ns and end_ns of the calls of modules; on CPU each event knows its module."""
    cuda: list[dict[str, Any]] = field(default_factory=list)
    """Chunks of the CUDA allocator's history, in order."""
    warnings: list[str] = field(default_factory=list)


_EMPTY: dict[str, tuple[str, ...]] = {
    "allocator": ("t_ns", "address", "delta_bytes", "reported_bytes", "operator", "transport", "site", "module"),
    "transport": ("name", "start_ns", "end_ns", "thread"),
    "operators": ("name", "start_ns", "end_ns", "thread"),
    "tags": ("t_ns", "address", "size_bytes", "category", "unit", "name", "weak"),
    "spans": ("unit", "kind", "start_ns", "end_ns", "size_bytes", "prefetched", "prefetch"),
    "calls": (
        "collective",
        "start_ns",
        "end_ns",
        "size_bytes",
        "group_size",
        "unit",
        "prefetched",
        "group",
        "group_description",
        "dtype",
    ),
    "phases": ("t_ns", "phase"),
    "drops": ("t_ns", "address"),
}


def read_capture_log(path: Path) -> CaptureLog:
    """The log as columns.

    Raises:
        InputError: not readable, or not a single whole line in it.
    """
    log = CaptureLog()
    parts: dict[str, list[Columns]] = {name: [] for name in _EMPTY}
    step_ends: list[int] = []
    began_ns: list[int] = []
    num_lines = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    record = msgspec.json.decode(line)
                    if not isinstance(record, dict):
                        raise msgspec.DecodeError("not an object")
                except (msgspec.DecodeError, UnicodeDecodeError):
                    log.warnings.append(
                        f"{path.name}: line {number} is cut short (process killed, or disk full); dropped"
                    )
                    continue
                num_lines += 1
                if record.get("kind") == "chunk" and "began_ns" in record:
                    began_ns.append(int(record["began_ns"]))
                _take(log, record, parts, step_ends)
    except OSError as e:
        raise InputError(f"{path}: cannot be read ({e.strerror or e})") from e
    if num_lines == 0:
        raise InputError(f"{path}: nothing readable in it; the rank ended before it recorded anything")
    for name, columns in _EMPTY.items():
        setattr(log, name, {c: _concatenate([p[c] for p in parts[name]], c) for c in columns})
    log.step_ends = np.array(step_ends, np.int64)
    log.began_ns = np.array(began_ns, np.int64)
    return log


def _take(log: CaptureLog, record: dict[str, Any], parts: dict[str, list[Columns]], step_ends: list[int]) -> None:
    match record.pop("kind", None):
        case "rank":
            log.rank = record
        case "model":
            log.model = log.model or record
        case "units":
            log.units.update({int(row["unit"]): row for row in record["units"]})
        case "first_forward":
            log.first_forward_ns = int(record["t_ns"])
            log.so_far.update(record.get("facts", {}))
        case "held":
            columns = {name: record[name] for name in ("address", "size_bytes")}
            log.held.append((int(record["t_ns"]), _decode(log.words, columns)))
        case "optimizer":
            log.optimizers.append(record)
        case "rewrap":
            log.rewrapped.append(str(record["note"]))
        case "bare_steps":
            log.bare_step_ends = [int(end) for end in record["ends"]]
        case "failure":
            log.failure = record
        case "end":
            log.end = record
        case "exit":
            log.has_exit = True
        case "chunk":
            _take_chunk(log, record, parts)
            step_ends += record["steps"]
        case other:
            log.warnings.append(f"unknown record {other!r} ignored; it was written by a newer release")


def _take_chunk(log: CaptureLog, chunk: dict[str, Any], parts: dict[str, list[Columns]]) -> None:
    step = int(chunk["step"])
    log.so_far.update(chunk.get("receipt", {}))
    log.buckets[step] = [u for u in log.units.values() if u["kind"] == "DDP_BUCKET"]
    for name in ("tags", "spans", "calls", "phases", "drops"):
        parts[name].append(_decode(log.words, chunk[name]))
    spans = parts["spans"][-1]
    if "prefetch" in spans:
        spans["prefetched"] = spans["prefetch"] != 0
    else:  # an older capture
        spans["prefetch"] = np.zeros(len(spans["unit"]), np.int32)
    calls = parts["calls"][-1]
    for absent in {"group", "group_description", "dtype"} - set(calls):  # an older capture
        calls[absent] = np.zeros(len(calls["unit"]), np.int32)
    held = chunk.get("host_states", {})
    if held:
        held["step"] = [step] * len(held["t_ns"])
    of_chunk = ((log.device, chunk.get("device")), (log.host_states, held), (log.module_calls, chunk.get("modules")),
                (log.losses, chunk.get("losses")))  # fmt: skip
    for kept, columns in of_chunk:
        for column, values in (columns or {}).items():
            kept.setdefault(column, []).extend(values)
    if "cuda" in chunk:
        log.cuda += chunk["cuda"]
        log.recorded_steps.add(step)
    if "cpu" in chunk:
        cpu = chunk["cpu"]
        if not chunk.get("in_step"):
            log.recorded_steps.add(step)
        to_global = log.words.codes(cpu["words"])
        before = sum(len(p["name"]) for p in parts["transport"])
        allocator = _decode(log.words, cpu["allocator"])
        allocator["operator"] = (
            to_global[allocator["operator"]] if len(allocator["operator"]) else np.zeros(0, np.int32)
        )
        for name in ("site", "module"):  # not in an older capture
            codes = allocator.get(name, np.zeros(len(allocator["operator"]), np.int64))
            allocator[name] = to_global[codes] if len(codes) else np.zeros(0, np.int32)
        under = allocator["transport"]
        allocator["transport"] = np.where(under >= 0, under + before, -1)
        parts["allocator"].append(allocator)
        for name in ("transport", "operators"):
            columns = {c: np.array(v, np.int64) for c, v in cpu[name].items()}
            columns["name"] = to_global[columns["name"]] if len(columns["name"]) else np.zeros(0, np.int32)
            parts[name].append(columns)


def _decode(words: Words, columns: dict[str, list[Any]]) -> Columns:
    return {
        name: words.codes(values) if name in _TEXT else np.array(values, _TYPES.get(name, np.int64))
        for name, values in columns.items()
    }


def _concatenate(arrays: list[Array], column: str) -> Array:
    if arrays:
        return np.concatenate(arrays)
    return np.zeros(0, np.int32 if column in _TEXT else _TYPES.get(column, np.int64))
