"""Events of a trace as columns, and beside them the few arguments that collectives need.

Times are kept as the file has them, in ns; the base time may stand behind the events and is added at the end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from fsdp_profile.ingest.kineto.events import (
    MAX_EXACT_FLOAT_US,
    NO_ARGS,
    UNFINISHED_US,
    Args,
    Event,
    Number,
    exact_ns,
    starts_as_text,
    to_int,
    without_inputs,
)
from fsdp_profile.ingest.kineto.names import (
    C10D_PREFIX,
    DEVICE_CATEGORIES,
    GLOO_PREFIX,
    HOST_CATEGORIES,
    NCCL_PREFIX,
    OPERATOR_CATEGORIES,
    PYTHON_FUNCTION,
)
from fsdp_profile.ingest.kineto.stream import Block

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NONE: Final = -1
NO_TIME: Final = -(1 << 62)
MAX_TIME_NS: Final = 1 << 62
ABSOLUTE_NS: Final = 10**18
"""Times from 2001 on count from 1970 already; those relative to a base time are below 3 months."""
UNKNOWN_STREAM: Final = (1 << 32) - 1
HOST_MEMORY: Final = 0
"""`Device Type` of an allocation on the host."""
EXACT_DECIMALS: Final = 3

_KNOWN_PHASES: Final = frozenset({"X", "M", "i", "I", "s", "t", "f", "C", "R", ""})
_ANNOTATED: Final = (GLOO_PREFIX, NCCL_PREFIX, C10D_PREFIX)


class Shape(msgspec.Struct, frozen=True):
    """Inputs of one call, as JSON: shapes and types."""

    dims: bytes
    types: bytes


class EventColumns:
    """Columns that grow by blocks of events; row i is the i-th timed event that was kept."""

    def __init__(self, *, keep_python_functions: bool = False) -> None:
        self.keep_python_functions = keep_python_functions
        self.num_rows = 0
        self.words: dict[str, int] = {}
        """Name or category -> code."""
        self.params: dict[int, Args] = {}
        """Row -> arguments, where they name a collective."""
        self.shapes: dict[int, Shape] = {}
        """Row -> inputs, of calls of a communication library."""
        self.num_timed = 0
        self.num_python_functions = 0
        self.num_without_time = 0
        self.num_open = 0
        self.num_negative = 0
        self.other_phases: Counter[str] = Counter()
        self.memory_devices: Counter[Number] = Counter()
        """`Device Type` -> memory events."""
        self.has_fractions = False
        """Some time is not a whole number of us."""
        self.absolute_decimals = 0
        """Most decimals of a time that float64 cannot hold to the ns."""
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []
        self._annotated: set[str] = set()
        self._thread_words: dict[str, int] = {}
        self._pids: set[tuple[str, Number]] = set()

    def add(self, block: Block) -> None:
        """Take in the timed events of a block, count the others."""
        timed = [e for e in block.events if e.ph == "X"]
        if len(timed) != len(block.events):
            self._count_others(block.events)
        self.num_timed += len(timed)
        kept = timed
        if not self.keep_python_functions:
            kept = [e for e in timed if e.cat != PYTHON_FUNCTION]
            self.num_python_functions += len(timed) - len(kept)
        if not kept:
            return
        start_ns = self._starts(kept, block)
        if (start_ns == NO_TIME).any():
            usable = start_ns != NO_TIME
            self.num_without_time += int((~usable).sum())
            kept = [e for e, ok in zip(kept, usable, strict=True) if ok]
            start_ns = start_ns[usable]
        if kept:
            self._add_rows(kept, start_ns)

    def _add_rows(self, events: list[Event], start_ns: Int64s) -> None:
        names, categories = [e.name for e in events], [e.cat for e in events]
        args = [e.args or NO_ARGS for e in events]
        duration_ns, is_open = self._durations(events)
        self._pids.update(zip(categories, [e.pid for e in events], strict=True))
        name_codes, category_codes = self._coded(names), self._coded(categories)
        thread = self._threads([e.tid for e in events])
        stream = self._streams([a.stream for a in args], thread, category_codes, set(categories))
        self._parts.append(
            (
                start_ns,
                duration_ns,
                name_codes,
                category_codes,
                thread,
                stream,
                int64s([a.correlation for a in args]),
                int64s([a.external_id for a in args]),
                is_open,
            )
        )
        base = self.num_rows
        self.params.update({base + i: without_inputs(a) for i, a in enumerate(args) if a.collective is not None})
        if self._annotated and not self._annotated.isdisjoint(names):
            self.shapes.update(
                {
                    base + i: Shape(bytes(a.input_dims), bytes(a.input_types))
                    for i, (name, a) in enumerate(zip(names, args, strict=True))
                    if name in self._annotated
                }
            )
        self.num_rows += len(events)

    def _coded(self, texts: list[str]) -> Int32s:
        for text in dict.fromkeys(texts):  # not a set: the order of words is part of the result
            if text not in self.words:
                self.words[text] = len(self.words)
                if text.startswith(_ANNOTATED):
                    self._annotated.add(text)
        return np.fromiter(map(self.words.__getitem__, texts), np.int32, len(texts))

    def _starts(self, kept: list[Event], block: Block) -> Int64s:
        """Start times in ns, NO_TIME where there is none; see [Note: Exact times]."""
        values = [e.ts for e in kept]
        if not self.has_fractions:
            self.has_fractions = any(type(v) is not int for v in values)
        floats = _floats(values)
        if floats is not None and np.abs(floats).max() < MAX_EXACT_FLOAT_US:
            return _to_ns(floats)
        if not self.has_fractions and floats is not None and np.abs(floats).max() * 1000 < MAX_TIME_NS:
            return np.array(values, np.int64) * 1000
        if block.payload is not None and any(type(v) is float for v in values):
            texts = starts_as_text(block.payload)
            chosen = {id(e) for e in kept}
            values = [text for e, text in zip(block.events, texts, strict=True) if id(e) in chosen]
        self._note_decimals(values)
        found = (exact_ns(v) for v in values)
        return np.array([NO_TIME if ns is None or abs(ns) >= MAX_TIME_NS else ns for ns in found], np.int64)

    def _note_decimals(self, values: Sequence[Number]) -> None:
        if self.absolute_decimals < EXACT_DECIMALS:
            decimals = max((len(v.partition(".")[2]) for v in values if isinstance(v, str)), default=0)
            self.absolute_decimals = max(self.absolute_decimals, decimals)

    def _durations(self, events: list[Event]) -> tuple[Int64s, Bools]:
        """Durations in ns, and which events did not end."""
        values = [e.dur for e in events]
        floats = _floats(values)
        if floats is None:
            exact = [exact_ns(v) for v in values]
            floats = np.array([UNFINISHED_US if ns is None else ns / 1000 for ns in exact], np.float64)
        is_open = floats == UNFINISHED_US
        num_below = int((floats < 0).sum())
        if num_below:
            self.num_open += int(is_open.sum())
            self.num_negative += num_below - int(is_open.sum())
            floats = np.maximum(floats, 0)
        return np.rint(np.minimum(floats, MAX_TIME_NS / 2000) * 1000).astype(np.int64), is_open

    def _threads(self, values: list[Number]) -> Int64s:
        try:
            return np.fromiter(values, np.int64, len(values))
        except (TypeError, ValueError, OverflowError):
            return np.array([self._thread(v) for v in values], np.int64)

    def _thread(self, value: Number) -> int:
        """A thread that is a word gets a number of its own below NONE."""
        number = to_int(value)
        if number is None and isinstance(value, str):
            number = NONE - 1 - self._thread_words.setdefault(value, len(self._thread_words))
        return NONE if number is None else number

    def _count_others(self, events: Iterable[Event]) -> None:
        others = [e for e in events if e.ph != "X"]
        phases = Counter(e.ph for e in others)
        self.other_phases += Counter({ph: n for ph, n in phases.items() if ph not in _KNOWN_PHASES})
        if phases["i"]:
            self.memory_devices.update(e.args.device_type for e in others if e.args and e.name == "[memory]")

    def _streams(self, values: list[Number], thread: Int64s, codes: Int32s, categories: set[str]) -> Int64s:
        """The device stream of device events, NONE of the others.

        Some host events (Triton's launches) have a stream in their arguments; a device event without one, or
        with an unknown one, has its stream as thread.
        """
        stream = int64s(values)
        is_device, is_host = np.zeros((2, len(self.words)), np.bool_)
        for category in categories:
            is_device[self.words[category]] = category.lower() in DEVICE_CATEGORIES
            is_host[self.words[category]] = category.lower() in HOST_CATEGORIES
        is_given = (stream >= 0) & (stream != UNKNOWN_STREAM)
        return np.where(is_given & ~is_host[codes], stream, np.where(is_device[codes], thread, NONE))

    @property
    def processes(self) -> list[str]:
        """The processes whose operators and calls were recorded."""
        chosen = OPERATOR_CATEGORIES | {"cuda_runtime"}
        return sorted({str(pid) for cat, pid in self._pids if cat.lower() in chosen and pid is not None})

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Start, duration, name code, category code, thread, stream, correlation, external id, is open.

        They are given away: this can be called once.
        """
        parts, self._parts = self._parts, []
        kinds = (np.int64, np.int64, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64, np.bool_)
        if not parts:
            return tuple(np.zeros(0, kind) for kind in kinds)
        by_column = [list(column) for column in zip(*parts, strict=True)]
        del parts
        found = []
        for column in by_column:
            found.append(np.concatenate(column))
            column.clear()
        return tuple(found)


def int64s(values: list[Number]) -> Int64s:
    """Integers, NONE where there is none."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([NONE if (n := to_int(v)) is None else n for v in values], np.int64)


def _floats(values: list[Number]) -> Floats | None:
    """Finite floats; None when some value is none."""
    try:
        found = np.fromiter(values, np.float64, len(values))
    except (TypeError, ValueError, OverflowError):
        return None
    return found if np.isfinite(found).all() else None


def _to_ns(us: Floats) -> Int64s:
    """Exact for up to three decimals below MAX_EXACT_FLOAT_US: whole and fraction are taken apart first."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
