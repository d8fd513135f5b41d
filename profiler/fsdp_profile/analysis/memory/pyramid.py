"""A rank's ledger downsampled for any time window; every row is a real allocator event.

Read from the table that the conversion wrote, made in memory for a run or bundle that has none; see [Note: Pyramid].
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.memory.ledger import Ints, Timeline
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.ingest.live_bytes import Identity
from fsdp_profile.ingest.memory_pyramid import BIN_EVENTS, FACTOR, pyramid_columns
from fsdp_profile.ingest.tables import make_table, numbers

MAX_ROWS: Final = 80_000
"""Of one level sent to a browser."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """Rows of a ledger, in order."""

    ledger: Timeline
    bin_events: int
    """Of so many events the least, the greatest and the last total are there; 1: every event is."""
    reserved_bytes: Ints | None = None
    """What the caching allocator held at each row; None on CPU."""
    active_bytes: Ints | None = None


def whole(run: Run, *, rank: int, max_rows: int = MAX_ROWS) -> Level:
    """The finest level of a whole rank with at most so many rows; the coarsest where none has so few.

    Raises:
        InputError: the rank's files are damaged.
    """
    table = run.table("memory_pyramid", rank=rank)
    if table.num_rows:  # the last event is in every level
        num_events = int(pc.max(table.column("event")).as_py()) + 1
    else:
        num_events = run.table("memory_samples", rank=rank).num_rows
    if num_events <= max_rows:
        return level_of(run, rank=rank, events=np.arange(num_events))
    table = _table(run, rank)
    return _finest(table, np.ones(table.num_rows, np.bool_), max_rows)


def between(run: Run, *, rank: int, start_ns: int, end_ns: int, max_rows: int = MAX_ROWS) -> Level:
    """The finest rows of a time window, every event where they are few enough; the last one before it is among them.

    Raises:
        InputError: the rank's files are damaged.
    """
    t_ns = numbers(run.table("memory_samples", rank=rank), "t_ns")
    first = max(int(np.searchsorted(t_ns, start_ns, side="right")) - 1, 0)
    stop = max(int(np.searchsorted(t_ns, end_ns, side="right")), min(first + 1, len(t_ns)))
    if stop - first <= max_rows:
        return level_of(run, rank=rank, events=np.arange(first, stop))
    table = _table(run, rank)
    event = numbers(table, "event")
    return _finest(table, (event >= first) & (event < stop), max_rows)


def level_of(run: Run, *, rank: int, events: Ints, bin_events: int = 1) -> Level:
    """The ledger at some events, and what the allocator held then."""
    return with_allocator(run, memory.timeline_at(run, rank=rank, events=events), rank=rank, bin_events=bin_events)


def with_allocator(run: Run, ledger: Timeline, *, rank: int, bin_events: int) -> Level:
    """A ledger and what the allocator held at its rows; a row before the first event takes that of the first."""
    events = np.maximum(ledger.event, 0)
    samples = run.table("memory_samples", rank=rank).select(["reserved_bytes", "active_bytes"]).take(pa.array(events))
    return Level(ledger=ledger, bin_events=bin_events, **_allocator(samples))


def _allocator(table: pa.Table) -> dict[str, Ints]:
    names = ("reserved_bytes", "active_bytes")
    return {name: numbers(table, name) for name in names if table.num_rows and not table.column(name).null_count}


def _finest(table: pa.Table, inside: "np.ndarray[Any, np.dtype[np.bool_]]", max_rows: int) -> Level:
    level = numbers(table, "level")
    rows = np.bincount(level[inside], minlength=int(level.max()) + 1)
    fits = np.flatnonzero(rows <= max_rows)
    number = int(fits[0]) if len(fits) else len(rows) - 1
    mine = table.filter(pa.array(inside & (level == number)))
    ledger = Timeline(
        t_ns=numbers(mine, "t_ns"),
        allocated_bytes=numbers(mine, "allocated_bytes"),
        by_category={category: numbers(mine, f"{category.lower()}_bytes") for category in CATEGORIES},
        event=numbers(mine, "event"),
    )
    return Level(ledger=ledger, bin_events=BIN_EVENTS * FACTOR**number, **_allocator(mine))


def _table(run: Run, rank: int) -> pa.Table:
    table = run.table("memory_pyramid", rank=rank)
    if table.num_rows:
        return table
    return _made(Identity(run.table("memory_samples", rank=rank)), Identity(run.table("allocations", rank=rank)))


@lru_cache(maxsize=4)
def _made(samples: Identity, blocks: Identity) -> pa.Table:
    return make_table("memory_pyramid", pyramid_columns(samples.table, blocks.table))
