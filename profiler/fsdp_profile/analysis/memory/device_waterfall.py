"""The device waterfall at one moment of one rank: allocated <= active <= reserved <= device used.

[Note: The waterfall]
allocated   what tensors hold; the ledger's categories sum to it
active      and blocks that were freed while a stream still used them (PENDING_FREE)
reserved    and what the caching allocator keeps in no block (RESERVED_UNUSED), pool by pool
used        and what is not PyTorch's allocator at all (OUTSIDE_PYTORCH): this process's context, communicators and
            libraries, and other processes on the device
The first three come from the allocator's history, `used` from NVML. Either may be missing; nothing is guessed then.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.tables import numbers, strings

MAX_SAMPLE_DISTANCE_NS: Final = 1_000_000_000
"""An NVML sample further from the moment than this says nothing about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamPool:
    """What the allocator holds for one stream in one pool."""

    stream: int
    pool: str
    """'0,0' is the default pool, others belong to CUDA graphs or to the script; '' when not recorded."""
    reserved_bytes: int
    active_bytes: int
    """Allocated or pending."""
    pending_bytes: int
    unused_bytes: int
    """Reserved and in no block: only allocations of this stream and pool can use it."""
    largest_free_bytes: int
    """The largest allocation that fits without asking the device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waterfall:
    """Bytes of one rank at one moment; None where a source did not record it."""

    rank: int
    t_ns: int
    event: int | None
    """Row of `memory_samples`; None for a moment of NVML alone."""
    allocated_bytes: int | None
    pending_free_bytes: int | None
    """Freed, but a stream still holds it: active - allocated."""
    reserved_unused_bytes: int | None
    reserved_bytes: int | None
    largest_free_bytes: int | None
    """Of all pools; None where the pools are not recorded."""
    pools: tuple[StreamPool, ...]
    """Most reserved first; empty where not recorded."""
    device_used_bytes: int | None
    process_used_bytes: int | None
    device_total_bytes: int | None

    @property
    def outside_bytes(self) -> int | None:
        """Used on the device, but not reserved by this rank's allocator."""
        if self.device_used_bytes is None or self.reserved_bytes is None:
            return None
        return self.device_used_bytes - self.reserved_bytes

    @property
    def outside_this_process_bytes(self) -> int | None:
        """Of it, by this process: CUDA context, communicators, libraries."""
        if self.process_used_bytes is None or self.reserved_bytes is None:
            return None
        return self.process_used_bytes - self.reserved_bytes

    @property
    def other_processes_bytes(self) -> int | None:
        """Of it, by other processes on the same device."""
        if self.device_used_bytes is None or self.process_used_bytes is None:
            return None
        return self.device_used_bytes - self.process_used_bytes


def waterfall(run: Run, *, rank: int, event: int | None = None) -> Waterfall | None:
    """At an event of `memory_samples`; by default at the peak of the training steps, else at NVML's highest sample.

    None where neither an allocator's pool nor a device was recorded (a run on CPU).
    """
    if event is None:
        found = peak(run, rank=rank)
        event = found.event if found is not None else None
    samples = run.table("memory_samples", rank=rank)
    reserved = _value(samples, "reserved_bytes", event)
    if event is None or reserved is None:
        return _of_device_alone(run, rank)
    allocated = int(samples.column("allocated_bytes")[event].as_py())
    active = _value(samples, "active_bytes", event)
    t_ns = int(samples.column("t_ns")[event].as_py())
    pools = pools_at(run, rank=rank, event=event)
    return Waterfall(
        rank=rank,
        t_ns=t_ns,
        event=event,
        allocated_bytes=allocated,
        pending_free_bytes=None if active is None else active - allocated,
        # Where events are missing more may be active than is reserved: nothing is known then.
        reserved_unused_bytes=None if active is None or active > reserved else reserved - active,
        reserved_bytes=reserved,
        largest_free_bytes=max((p.largest_free_bytes for p in pools), default=None),
        pools=pools,
        **_device(run, rank, t_ns),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Communicator:
    """A process group that communicated; its communicator was made at its first collective, if not before."""

    group: str
    description: str
    group_size: int | None
    first_ns: int

    @property
    def label(self) -> str:
        """'mesh_shard 3, 8 ranks'."""
        name = " ".join(filter(None, [self.description, self.group])) or "unnamed group"
        return name if self.group_size is None else f"{name}, {self.group_size} ranks"


def communicators(run: Run, *, rank: int) -> tuple[Communicator, ...]:
    """The process groups of a rank's collectives, set-up included, in order of their first one."""
    table = run.table("collectives", rank=rank).sort_by("issue_ns")
    found: dict[tuple[str, str], Communicator] = {}
    for row in table.select(["group", "group_description", "group_size", "issue_ns"]).to_pylist():
        key = (row["group"] or "", row["group_description"] or "")
        if key != ("", ""):
            made = Communicator(
                group=key[0], description=key[1], group_size=row["group_size"], first_ns=row["issue_ns"]
            )
            found.setdefault(key, made)
    return tuple(found.values())


def pools_at(run: Run, *, rank: int, event: int) -> tuple[StreamPool, ...]:
    """The allocator's pools by stream at one event, most reserved first; empty where segments are not recorded."""
    segments = _alive(run.table("segments", rank=rank), event)
    if segments.num_rows == 0:
        return ()
    pending = _alive(run.table("pending_frees", rank=rank), event)
    blocks = _alive(run.table("allocations", rank=rank), event)
    used = _Spans.of([blocks, pending])
    held = _Spans.of([pending])
    keys = list(zip(numbers(segments, "stream").tolist(), strings(segments, "pool").tolist(), strict=True))
    found = []
    for stream, pool in dict.fromkeys(keys):
        mine = segments.filter(pa.array([key == (stream, pool) for key in keys]))
        begins, ends = _ranges(mine)
        reserved = int((ends - begins).sum())
        gaps = used.gaps(begins, ends)
        unused = int(sum(gaps))
        found.append(
            StreamPool(
                stream=int(stream),
                pool=str(pool),
                reserved_bytes=reserved,
                active_bytes=reserved - unused,
                pending_bytes=int(sum(held.covered(b, e) for b, e in zip(begins, ends, strict=True))),
                unused_bytes=unused,
                largest_free_bytes=int(max(gaps, default=0)),
            )
        )
    return tuple(sorted(found, key=lambda p: (-p.reserved_bytes, p.stream, p.pool)))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Disjoint address ranges in order; Python integers, for addresses may lie above what int64 holds."""

    begins: list[int]
    ends: list[int]

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> "_Spans":
        spans = sorted(
            (address, address + size)
            for table in tables
            for address, size in zip(
                numbers(table, "address").tolist(), numbers(table, "size_bytes").tolist(), strict=True
            )
        )
        return cls([a for a, _ in spans], [b for _, b in spans])

    def inside(self, begin: int, end: int) -> list[tuple[int, int]]:
        first = int(np.searchsorted(np.array(self.ends, np.uint64), np.uint64(begin), side="right"))
        found = []
        for a, b in zip(self.begins[first:], self.ends[first:], strict=True):
            if a >= end:
                break
            found.append((max(a, begin), min(b, end)))
        return found

    def covered(self, begin: int, end: int) -> int:
        return sum(b - a for a, b in self.inside(begin, end))

    def gaps(self, begins: Any, ends: Any) -> list[int]:
        """Sizes of what is free between the blocks of each range."""
        found = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            at = begin
            for a, b in self.inside(begin, end):
                found.append(a - at)
                at = max(at, b)
            found.append(end - at)
        return [gap for gap in found if gap > 0]


def _ranges(segments: pa.Table) -> tuple[Any, Any]:
    """Address ranges of segments; neighbouring pieces of expandable segments are one."""
    rows = sorted(
        zip(
            numbers(segments, "address").tolist(),
            numbers(segments, "size_bytes").tolist(),
            segments.column("is_expandable").to_pylist(),
            strict=True,
        )
    )
    merged: list[list[int]] = []
    may_grow = False
    for address, size, is_expandable in rows:
        if merged and may_grow and is_expandable and merged[-1][1] == address:
            merged[-1][1] += size
        else:
            merged.append([address, address + size])
        may_grow = is_expandable
    return np.array([a for a, _ in merged], object), np.array([b for _, b in merged], object)


def _alive(table: pa.Table, event: int) -> pa.Table:
    start, end = numbers(table, "start_event"), numbers(table, "end_event")
    return table.filter(pa.array((start <= event) & (end > event)))


def _value(table: pa.Table, name: str, event: int | None) -> int | None:
    if event is None or table.num_rows == 0:
        return None
    found = table.column(name)[event].as_py()
    return None if found is None else int(found)


def _device(run: Run, rank: int, t_ns: int) -> dict[str, int | None]:
    """What NVML said nearest to a moment."""
    none = dict.fromkeys(("device_used_bytes", "process_used_bytes", "device_total_bytes"))
    samples = run.table("device_samples", rank=rank)
    known = np.flatnonzero(samples.column("device_used_bytes").is_valid().to_numpy())
    if len(known) == 0:
        return {**none, "device_total_bytes": run.manifest.device_total_bytes}
    distance = np.abs(numbers(samples, "t_ns")[known] - t_ns)
    row = int(known[np.argmin(distance)])
    if distance.min() > MAX_SAMPLE_DISTANCE_NS:
        return {**none, "device_total_bytes": _value(samples, "device_total_bytes", row)}
    return {name: _value(samples, name, row) for name in none}


def _of_device_alone(run: Run, rank: int) -> Waterfall | None:
    samples = run.table("device_samples", rank=rank)
    used = samples.column("device_used_bytes")
    if used.null_count == samples.num_rows:
        return None
    row = int(np.argmax(used.fill_null(-1).to_numpy()))
    return Waterfall(
        rank=rank,
        t_ns=int(samples.column("t_ns")[row].as_py()),
        event=None,
        allocated_bytes=None,
        pending_free_bytes=None,
        reserved_unused_bytes=None,
        reserved_bytes=None,
        largest_free_bytes=None,
        pools=(),
        device_used_bytes=_value(samples, "device_used_bytes", row),
        process_used_bytes=_value(samples, "process_used_bytes", row),
        device_total_bytes=_value(samples, "device_total_bytes", row),
    )
