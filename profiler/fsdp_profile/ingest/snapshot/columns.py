"""The dicts of an allocator snapshot as numpy columns; a field that does not fit is an InputError.

The only place that loops over events and blocks, to pull their fields. Keys that are not needed are ignored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.snapshot.frames import Stacks, clean_text
from fsdp_profile.ingest.snapshot.replay import NONE, EndState, Int64s, Kind

KINDS: Final = {
    "alloc": Kind.ALLOC,
    "free_requested": Kind.FREE_REQUESTED,
    "free_completed": Kind.FREE_COMPLETED,
    "segment_alloc": Kind.SEGMENT_GROWS,
    "segment_map": Kind.SEGMENT_GROWS,
    "segment_free": Kind.SEGMENT_SHRINKS,
    "segment_unmap": Kind.SEGMENT_SHRINKS,
    "oom": Kind.IGNORED,
    "snapshot": Kind.IGNORED,
    "user_defined": Kind.IGNORED,
}
OOM: Final = "oom"
INACTIVE: Final = "inactive"
ACTIVE_ALLOCATED: Final = "active_allocated"
PENDING_STATES: Final = ("active_pending_free", "active_awaiting_free")  # as written; as torch documents it

MAX_BLOCK_BYTES: Final = 1 << 42  # more than any device has: sums of hostile sizes stay inside int64
MAX_TIME_US: Final = ((1 << 63) - 1) // 1000
ADDRESS_MASK: Final = (1 << 64) - 1

Numbers = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventColumns:
    """The events of one device, in their order."""

    t_ns: Int64s
    """Never decreasing."""
    action: Numbers
    """Number in `actions`."""
    actions: list[str]
    kind: Int64s
    address: NDArray[np.uint64]
    size_bytes: Int64s
    stream: Int64s
    stack: Numbers
    """Number in the Stacks given; NONE."""
    pool: Numbers
    """Number in the given Numbering; NONE."""
    oom_rows: Int64s
    oom_device_free_bytes: list[int | None]
    unknown_actions: dict[str, int]
    """Action -> how many events were ignored for it."""
    num_without_time: int
    num_back_in_time: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentColumns:
    """The segments of one device, and their blocks in use."""

    address: NDArray[np.uint64]
    total_bytes: Int64s
    allocated_bytes: Int64s
    """Sum of its allocated blocks."""
    pending_free_bytes: Int64s
    """Sum of its blocks that are freed but held by a stream."""
    reported_active_bytes: Int64s
    """The two together as the snapshot says; NONE where it does not."""
    stream: Int64s
    segment_type: list[str]
    is_expandable: list[bool]
    pool: Numbers
    """Number in the given Numbering; NONE."""
    blocks: EndState
    block_segment: Int64s
    """Per block: its segment."""
    block_stack: Numbers
    """Per block: number in the Stacks given; NONE."""
    unknown_states: dict[str, int]
    """State -> how many blocks were ignored for it."""
    num_twice: int
    """Blocks ignored because another has their address."""


class Numbering:
    """Numbers for distinct values, in the order seen."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The value's number, a new one when it is new."""
        return self.numbers.setdefault(value, len(self.numbers))

    def pool(self, pool_id: Any) -> int:
        """Number of a memory pool, given as two ints; NONE when not given."""
        return NONE if pool_id is None else self.number(tuple(pool_id))


def not_a_snapshot(reason: str) -> NoReturn:
    """Raise an InputError with the reason; the caller that knows the file prefixes its name."""
    raise InputError(f"not an allocator snapshot ({reason}); write one with torch.cuda.memory._dump_snapshot(path)")


def event_columns(trace: Sequence[Any], *, stacks: Stacks, pools: Numbering) -> EventColumns:
    """The columns of one entry of `device_traces`; numbers new stacks and pools.

    Raises:
        InputError: an event is not a dict, or a field is not what it should be.
    """
    actions = Numbering()
    action = _numbers(actions.number, pull(trace, "action", ""), "action")
    names = [clean_text(name) for name in actions.numbers]
    kind = np.array([KINDS.get(name, Kind.IGNORED) for name in names], np.int64)[action]
    counts = np.bincount(action, minlength=len(names))
    oom_rows = np.flatnonzero(action == actions.numbers.get(OOM, NONE))
    size_bytes = int_column(pull(trace, "size", 0), np.int64, "size")
    _check_sizes(size_bytes[kind != Kind.IGNORED])
    times = pull(trace, "time_us", None)
    t_ns, num_back_in_time = time_column(times)
    return EventColumns(
        t_ns=t_ns,
        action=action,
        actions=names,
        kind=kind,
        address=_addresses(pull(trace, "addr", 0)),
        size_bytes=size_bytes,
        stream=int_column(pull(trace, "stream", 0), np.int64, "stream"),
        stack=_numbers(stacks.number, pull(trace, "frames", None), "frames"),
        pool=_numbers(pools.pool, pull(trace, "pool_id", None), "pool_id"),
        oom_rows=oom_rows,
        oom_device_free_bytes=[_int_or_none(trace[row].get("device_free")) for row in oom_rows.tolist()],
        unknown_actions={name: int(counts[i]) for i, name in enumerate(names) if name not in KINDS},
        num_without_time=times.count(None),
        num_back_in_time=num_back_in_time,
    )


def segment_columns(segments: Sequence[Any], *, stacks: Stacks, pools: Numbering, known: bool = True) -> SegmentColumns:
    """The columns of one device's segments; numbers new stacks and pools.

    Args:
        segments: dicts of `segments`.
        stacks: numbers the stacks of blocks.
        pools: numbers the memory pools.
        known: False when the snapshot had no list of segments.

    Raises:
        InputError: a segment or block is not a dict, or a field is not what it should be.
    """
    address = _addresses(pull(segments, "address", 0))
    total_bytes = int_column(pull(segments, "total_size", None), np.int64, "total_size")
    lists = pull(segments, "blocks", ())
    try:
        blocks = [block for entry in lists for block in entry]
        counts = [len(entry) for entry in lists]
    except TypeError:
        not_a_snapshot("the blocks of a segment are not a list")
    owner = np.repeat(np.arange(len(segments)), counts)

    states = Numbering()
    state = _numbers(states.number, pull(blocks, "state", INACTIVE), "state")
    names = [clean_text(name) for name in states.numbers]
    is_allocated = np.array([name == ACTIVE_ALLOCATED for name in names], np.bool_)[state]
    is_pending = np.array([name in PENDING_STATES for name in names], np.bool_)[state]
    size = int_column(pull(blocks, "size", 0), np.int64, "block size")
    _check_sizes(size)
    _check_sizes(total_bytes)
    block_address = _block_addresses(pull(blocks, "address", None), address, owner, size)

    used = np.flatnonzero(is_allocated | is_pending)
    once = np.sort(used[np.unique(block_address[used], return_index=True)[1]])
    requested = [blocks[i].get("requested_size", size[i]) for i in once]
    allocated_bytes, pending_free_bytes = np.zeros((2, len(segments)), np.int64)
    np.add.at(allocated_bytes, owner[once], size[once] * is_allocated[once])
    np.add.at(pending_free_bytes, owner[once], size[once] * is_pending[once])
    known_states = (ACTIVE_ALLOCATED, INACTIVE, *PENDING_STATES)
    number_of = np.bincount(state, minlength=len(names))
    return SegmentColumns(
        address=address,
        total_bytes=total_bytes,
        allocated_bytes=allocated_bytes,
        pending_free_bytes=pending_free_bytes,
        reported_active_bytes=int_column(pull(segments, "active_size", NONE), np.int64, "active_size"),
        stream=int_column(pull(segments, "stream", 0), np.int64, "stream"),
        segment_type=[clean_text(value) for value in pull(segments, "segment_type", "")],
        is_expandable=[bool(value) for value in pull(segments, "is_expandable", 0)],
        pool=_numbers(pools.pool, pull(segments, "segment_pool_id", None), "segment_pool_id"),
        blocks=EndState(
            address=block_address[once],
            size_bytes=size[once],
            requested_bytes=int_column(requested, np.int64, "requested_size"),
            pending=is_pending[once],
            reserved_bytes=int(total_bytes.sum()),
            known=known,
        ),
        block_segment=owner[once],
        block_stack=_numbers(stacks.number, [blocks[i].get("frames") for i in once], "frames"),
        unknown_states={name: int(number_of[i]) for i, name in enumerate(names) if name not in known_states},
        num_twice=len(used) - len(once),
    )


def pull(rows: Sequence[Any], key: str, default: Any) -> list[Any]:
    """One field of every dict."""
    try:
        return [row.get(key, default) for row in rows]
    except (AttributeError, TypeError):
        not_a_snapshot("an event, segment or block is not a dict")


def int_column(values: list[Any], dtype: Any, name: str) -> Any:
    """A column of ints; None, text, lists and what does not fit are refused."""
    try:
        array = np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        not_a_snapshot(f"a value of '{name}' is not a number, or too large")
    if array.ndim != 1:
        not_a_snapshot(f"the values of '{name}' are lists")
    return array


def _numbers(number: Callable[[Any], int], values: list[Any], name: str) -> Numbers:
    """A column of numbers of values; objects that events share are looked at once."""
    ids = list(map(id, values))
    try:
        known = {key: number(value) for key, value in dict(zip(ids, values, strict=True)).items()}
        return np.array([known[key] for key in ids], np.int32)
    except (TypeError, ValueError, AttributeError, OverflowError):
        not_a_snapshot(f"a value of '{name}' cannot be read")


def _addresses(values: list[Any]) -> NDArray[np.uint64]:
    """Exact unsigned addresses: some versions of torch write those above 2**63 as negative numbers."""
    try:
        if values and min(values) < 0:
            values = [value & ADDRESS_MASK for value in values]
    except TypeError:
        not_a_snapshot("an address is not a number")
    array: NDArray[np.uint64] = int_column(values, np.uint64, "address")
    return array


def _block_addresses(
    values: list[Any], segment_address: NDArray[np.uint64], owner: Int64s, size: Int64s
) -> NDArray[np.uint64]:
    """Addresses of blocks; torch before 2.2 does not write them, but blocks follow one another."""
    if None not in values:
        return _addresses(values)
    before = np.cumsum(size) - size
    first = np.searchsorted(owner, owner)  # row of the first block in the same segment
    return segment_address[owner] + (before - before[first]).astype(np.uint64)


def time_column(values: list[Any]) -> tuple[Int64s, int]:
    """Nanoseconds that never go back, and how often they did."""
    if None in values:  # each without a time happened with the one before it
        last = 0
        values = [last := last if value is None else value for value in values]
    time_us = int_column(values, np.int64, "time_us")
    if len(time_us) and (time_us.min() < 0 or time_us.max() > MAX_TIME_US):
        not_a_snapshot("a value of 'time_us' is not a time")
    num_back = int((time_us[1:] < time_us[:-1]).sum())
    return np.maximum.accumulate(time_us * 1000), num_back


def _check_sizes(sizes: Int64s) -> None:
    if len(sizes) and (sizes.min() < 0 or sizes.max() > MAX_BLOCK_BYTES):
        worst = sizes.min() if sizes.min() < 0 else sizes.max()
        not_a_snapshot(f"a size of {worst:,} bytes is impossible")


def _int_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) else None
