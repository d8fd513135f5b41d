"""Live bytes by category at any events of a rank, from its blocks: never all categories at all events at once.

[Note: No dense ledger]
Fourteen categories at each of ten million events are 1.1 GB, and every step of making them as much again. A block
changes the ledger twice: where it begins and where it ends. These changes are kept in buckets of CHUNK events, with
what was live before each bucket. The ledger of some events is then that of the buckets they lie in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.ingest.tables import numbers, words

Ints = np.ndarray[Any, np.dtype[np.int64]]

CHUNK: Final = 1 << 16
"""Events of a bucket: 7 MB of ledger."""


class Identity:
    """A table as a cache key: tables of an unchanged file are the same object."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.table is self.table


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveBytes:
    """The ledger of one rank; arrays of results have a row per category, in the order of the schema."""

    num_events: int
    event: "np.ndarray[Any, np.dtype[np.int32]]"
    """Of each change, in order of its bucket (not within it)."""
    change_bytes: Ints
    category: "np.ndarray[Any, np.dtype[np.uint8]]"
    """Row of the results."""
    bounds: Ints
    """Where the changes of each bucket begin, and the end of the last."""
    before: Ints
    """Live bytes by category (row) before each bucket (column)."""

    def at(self, events: Ints) -> Ints:
        """Live bytes after each of some events, in any order."""
        found = np.zeros((len(CATEGORIES), len(events)), np.int64)
        bucket = events // CHUNK
        order = np.argsort(bucket, kind="stable")
        chunks, first = np.unique(bucket[order], return_index=True)
        stop = np.append(first, len(order))[1:]
        for chunk, a, b in zip(chunks.tolist(), first.tolist(), stop.tolist(), strict=True):
            mine = order[a:b]
            found[:, mine] = self._chunk(chunk)[:, events[mine] - chunk * CHUNK]
        return found

    def chunks(self) -> Iterator[tuple[int, Ints]]:
        """All events, bucket by bucket: (first event, live bytes after it and each that follows)."""
        for chunk in range(len(self.bounds) - 1):
            yield chunk * CHUNK, self._chunk(chunk)

    def totals(self) -> Iterator[tuple[int, Ints]]:
        """The same of all categories together: one row."""
        for chunk in range(len(self.bounds) - 1):
            mine = slice(self.bounds[chunk], self.bounds[chunk + 1])
            change = np.zeros(self._width(chunk), np.int64)
            np.add.at(change, self.event[mine] - chunk * CHUNK, self.change_bytes[mine])
            yield chunk * CHUNK, change.cumsum() + self.before[:, chunk].sum()

    def _chunk(self, chunk: int) -> Ints:
        mine = slice(self.bounds[chunk], self.bounds[chunk + 1])
        width = self._width(chunk)
        change = np.zeros(len(CATEGORIES) * width, np.int64)
        place = self.category[mine].astype(np.int64) * width + (self.event[mine] - chunk * CHUNK)
        np.add.at(change, place, self.change_bytes[mine])
        live: Ints = change.reshape(len(CATEGORIES), width)
        for row in live:  # in place: most rows of most chunks are empty
            if row.any():
                row.cumsum(out=row)
        live += self.before[:, chunk, None]
        return live

    def _width(self, chunk: int) -> int:
        return min(CHUNK, self.num_events - chunk * CHUNK)


def live_bytes(blocks: pa.Table, num_events: int) -> LiveBytes:
    """The ledger of a rank's `allocations`; kept while the table is.

    Raises:
        IndexError: a block begins after the last event, or before the first.
    """
    return _cached(Identity(blocks), num_events)


@lru_cache(maxsize=8)
def _cached(key: Identity, num_events: int) -> LiveBytes:
    blocks = key.table
    start, end, size = (numbers(blocks, name) for name in ("start_event", "end_event", "size_bytes"))
    if len(start) and (start.min() < 0 or start.max() > num_events or end.min() < 0):
        raise IndexError(f"a block lies outside of the {num_events:,} events")
    row = category_rows(blocks)
    begins, ends = np.flatnonzero(start < num_events), np.flatnonzero(end < num_events)
    event = np.concatenate([start[begins], end[ends]]).astype(np.int32)
    change = np.concatenate([size[begins], -size[ends]])
    category = np.concatenate([row[begins], row[ends]])
    num_chunks = -(-num_events // CHUNK)
    bucket = (event // CHUNK).astype(np.uint16)  # up to 4.3 billion events; numpy sorts 16 bits by counting
    order = np.argsort(bucket, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=num_chunks))])
    before = np.zeros((len(CATEGORIES), num_chunks + 1), np.int64)
    np.add.at(before, (category, bucket.astype(np.int64) + 1), change)
    return LiveBytes(
        num_events=num_events,
        event=event[order],
        change_bytes=change[order],
        category=category[order],
        bounds=bounds,
        before=before.cumsum(axis=1),
    )


def category_rows(blocks: pa.Table) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Number of each block's category in the schema; of a category that this release does not know, UNKNOWN's."""
    codes, vocabulary = words(blocks, "category")
    known = {category.value: row for row, category in enumerate(CATEGORIES)}
    unknown = known[Category.UNKNOWN.value]  # also what a category of a newer minor schema is to this release
    position = np.array([known.get(word, unknown) for word in vocabulary] or [0], np.uint8)
    return position[codes] if len(codes) else np.zeros(0, np.uint8)
