"""Read a trace of torch.profiler (Kineto's Chrome JSON, plain or gzipped), whole or damaged.

Every event that is whole is kept; what was damaged, repaired or assumed is in `warnings`, one line each. The
file is read in blocks: memory goes with the events kept, not with the size of the file.

[Note: One time axis]
`start_ns` is unix time: baseTimeNanoseconds plus the event's time, or the event's time alone where that
counts from 1970 already, as it does in old traces and in those of some other writers. A trace with neither
counts from an unknown moment.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.calls import Rows
from fsdp_profile.ingest.kineto.collectives import collectives_table
from fsdp_profile.ingest.kineto.columns import ABSOLUTE_NS, EventColumns
from fsdp_profile.ingest.kineto.metadata import ProcessGroup, choose_rank, read_metadata
from fsdp_profile.ingest.kineto.stream import BLOCK_BYTES, EventStream
from fsdp_profile.ingest.kineto.warnings import content_warnings, damage_warnings, rank_warnings, time_warnings

MAX_PROCESSES: Final = 4
MAX_PROCESS_CHARS: Final = 20

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
EVENTS: Final = pa.schema(
    [
        pa.field("name", _WORDS, nullable=False),
        pa.field("category", _WORDS, nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("thread", pa.int64(), nullable=False),
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("correlation", pa.int64(), nullable=False),
        pa.field("external_id", pa.int64(), nullable=False),
        pa.field("is_open", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One rank's trace."""

    rank: int | None
    rank_source: str
    """Where the rank comes from: 'content', 'given', 'file name' (the last two are assumed), or 'none'."""
    world_size: int | None
    base_ns: int
    """The file's baseTimeNanoseconds, 0 when it has none; see [Note: One time axis]."""
    events: pa.Table
    """Timed events in the order of the file: name, category string (lower case), start_ns, end_ns int64
    (unix time), thread int64 (a word has a number below -1), stream int64 (-1 on the host), correlation,
    external_id int64 (-1: none), is_open bool (it did not end: end_ns is start_ns)."""
    collectives: pa.Table
    """One row per communication kernel or gloo transport, by start; columns as in `collectives_table`."""
    process_groups: tuple[ProcessGroup, ...]
    """Those that the rank belongs to, as the file lists them."""
    num_events: int
    """Whole events in the file, those of every phase and Python functions included."""
    num_dropped: int
    """Events that were damaged, or have no time."""
    num_python_functions: int
    """Events of Python functions that were skipped."""
    is_cut: bool
    """The file ends early: its last step is incomplete."""
    warnings: list[str]
    """One line each: what, how many, where."""


def read_trace(
    path: str | Path,
    *,
    rank: int | None = None,
    keep_python_functions: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Trace:
    """The trace in a file of torch.profiler, .json or .json.gz by its content.

    Args:
        path: the file.
        rank: its rank, where the file does not record it.
        keep_python_functions: put Python functions among the events; they can be most of a trace.
        block_bytes: how much is read at a time.

    Raises:
        InputError: not readable, empty, not a trace, two traces mixed, or no timed event in it.
    """
    path = Path(path)
    stream = EventStream(path)
    columns = EventColumns(keep_python_functions=keep_python_functions)
    for block in stream.blocks(block_bytes):
        columns.add(block)
    _refuse_mixed(stream, columns)
    if not columns.num_timed:
        others = f"{stream.num_events} others, {stream.num_dropped} damaged"
        raise InputError(f"{path}: no timed events ({others}); record while the profiler is active")
    metadata = read_metadata(stream.head, stream.tail)
    ranked = choose_rank(path, metadata, given=rank)
    is_absolute, events, rows = _tables(columns, base_ns=metadata.base_ns or 0)
    collectives = collectives_table(rows, metadata.process_groups)
    return Trace(
        rank=ranked.rank,
        rank_source=ranked.source,
        world_size=metadata.world_size,
        base_ns=metadata.base_ns or 0,
        events=events,
        collectives=collectives,
        process_groups=metadata.process_groups,
        num_events=stream.num_events - columns.num_without_time,
        num_dropped=stream.num_dropped + columns.num_without_time,
        num_python_functions=columns.num_python_functions,
        is_cut=stream.is_cut,
        warnings=[
            *damage_warnings(stream, columns),
            *time_warnings(stream, columns, base_ns=metadata.base_ns, is_absolute=is_absolute),
            *rank_warnings(stream, ranked),
            *content_warnings(events, collectives, columns),
        ],
    )


def _refuse_mixed(stream: EventStream, columns: EventColumns) -> None:
    """Refuse a file that two writers mixed: its events cannot be trusted."""
    processes = columns.processes
    if stream.is_mixed or len(processes) > 1:
        listed = ", ".join(ascii(process[:MAX_PROCESS_CHARS])[1:-1] for process in processes[:MAX_PROCESSES])
        who = f" (processes {listed})" if len(processes) > 1 else ""
        raise InputError(
            f"{stream.path}: two traces are mixed in this file{who}; write one file per rank and record again"
        )


def _tables(columns: EventColumns, *, base_ns: int) -> tuple[bool, pa.Table, Rows]:
    """Whether times are absolute, the events, and what collectives are found in."""
    words = list(columns.words)
    start, duration, name, category, thread, stream, correlation, external_id, is_open = columns.columns()
    is_absolute = bool(len(start)) and float(np.median(start)) >= ABSOLUTE_NS
    if not is_absolute:
        start += base_ns
    end = duration
    end += start
    events = pa.Table.from_arrays(
        [
            _dictionary(name, words),
            _dictionary(category, [word.lower() for word in words]),
            *(pa.array(c) for c in (start, end, thread, stream, correlation, external_id, is_open)),
        ],
        schema=EVENTS,
    )
    rows = Rows(
        words=words,
        name=name,
        category=category,
        start_ns=start,
        end_ns=end,
        thread=thread,
        correlation=correlation,
        external_id=external_id,
        params=columns.params,
        shapes=columns.shapes,
    )
    return is_absolute, events, rows


def _dictionary(codes: npt.NDArray[Any], words: list[str]) -> pa.DictionaryArray:
    """Text by codes into `words`; only the words that occur are kept, equal ones once."""
    occurring = np.flatnonzero(np.bincount(codes, minlength=len(words)))
    kept: dict[str, int] = {}
    new = np.zeros(len(words), np.int32)
    for code in occurring.tolist():
        new[code] = kept.setdefault(words[code], len(kept))
    return pa.DictionaryArray.from_arrays(pa.array(new[codes]), pa.array(list(kept), pa.string()))
