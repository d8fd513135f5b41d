"""Pair every alloc with its free, on CPU.

A block still live at the end of the recording has end_ns = NOT_FREED.

[Note: Unreported frees] torch.profiler records frees of profiled threads only; gloo's workers free their scratch, and
at times the tensors they were given. The end of a block whose free is missing is the first of these that applies:
1. when the last tensor on it that was given to a collective was destroyed (the hooks watch those);
2. if it was allocated under a communication operator, or as the result of a functional collective, when that
   operator's transport ended, unless a tag names it later;
3. when its address is allocated again.
The allocator's own total keeps counting such bytes: `unreported_free_bytes` is their sum, so that allocated +
unreported = reported at every event.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsdp_profile.core.schema import NOT_FREED

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """One row per block, in the order of allocation."""

    address: Array
    size_bytes: Array
    start_ns: Array
    end_ns: Array
    start_event: Array
    """Row of the samples."""
    end_event: Array
    operator: Array
    """Code of the innermost operator."""
    site: Array
    """Code of the line of user code that allocated; 0 without stacks."""
    module: Array
    """Code of the path of the module whose forward allocated; 0 without stacks."""
    transport: Array
    """Row of the transport operators it was allocated under, -1 when none."""
    stream: Array
    free_unreported: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """One row per change of the live bytes, in time order."""

    t_ns: Array
    delta_bytes: Array
    allocated_bytes: Array
    reported_bytes: Array | None
    unreported_free_bytes: Array
    reserved_bytes: Array | None = None
    active_bytes: Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Blocks and samples of one rank, and warnings about what was corrected."""

    blocks: Blocks
    samples: Samples
    warnings: tuple[str, ...] = ()


def pair_cpu_events(
    *, t_ns: Array, address: Array, delta_bytes: Array, reported_bytes: Array, operator: Array, transport: Array,
    transport_end_ns: Array, drops: dict[str, Array] | None = None, tags: dict[str, Array] | None = None,
    site: Array | None = None, module: Array | None = None,
) -> Ledger:  # fmt: skip
    """The ledger of allocator events in time order.

    `transport_end_ns` is the end of each transport operator; `drops` (t_ns, address) are the deaths of tensors that
    were given to collectives; `tags` (t_ns, address) name blocks that were alive.

    Bytes that were there before the first event (another profiler's) become one block without address.
    """
    reported_bytes = with_mapped(delta_bytes, reported_bytes)
    base = int(reported_bytes[0] - delta_bytes[0]) if len(t_ns) else 0
    if base > 0:
        t_ns, address = np.insert(t_ns, 0, t_ns[0]), np.insert(address, 0, 0)
        delta_bytes = np.insert(delta_bytes, 0, base)
        reported_bytes = np.insert(reported_bytes, 0, base)
        operator, transport = np.insert(operator, 0, 0), np.insert(transport, 0, -1)
        site = np.insert(site, 0, 0) if site is not None else None
        module = np.insert(module, 0, 0) if module is not None else None
    num = len(t_ns)
    is_alloc = delta_bytes > 0
    follower = _next_at_same_address(address)
    has_follower = follower < num
    next_is_free = np.zeros(num, bool)
    next_is_free[has_follower] = ~is_alloc[follower[has_follower]]
    alloc = np.flatnonzero(is_alloc)
    is_paired = next_is_free[alloc]
    end_ns = np.full(len(alloc), NOT_FREED, np.int64)
    end_ns[is_paired] = t_ns[follower[alloc[is_paired]]]
    lost_end = _lost_ends(alloc, is_paired, follower, t_ns, transport, transport_end_ns)
    if tags is not None and len(tags["t_ns"]):
        lost_end = _outlived_ends(lost_end, ~is_paired, address[alloc], follower[alloc], t_ns, tags)
    if drops is not None and len(drops["t_ns"]):
        lost_end = _dropped_ends(lost_end, ~is_paired, address[alloc], t_ns[alloc], follower[alloc], t_ns, drops)
    is_lost = lost_end != NOT_FREED
    end_ns = np.where(is_lost, lost_end, end_ns)
    orphans = int((~is_alloc).sum() - is_paired.sum())

    samples, row_of_event, row_of_lost = _samples(
        t_ns, np.where(is_alloc, delta_bytes, 0), reported_bytes, alloc, is_paired, follower, lost_end, delta_bytes
    )
    end_event = np.full(len(alloc), NOT_FREED, np.int64)
    end_event[is_paired] = row_of_event[follower[alloc[is_paired]]]
    end_event[is_lost] = row_of_lost
    warnings = (f"{orphans} frees of blocks that were allocated before the recording",) if orphans else ()
    return Ledger(
        blocks=Blocks(
            address=address[alloc],
            size_bytes=delta_bytes[alloc],
            start_ns=t_ns[alloc],
            end_ns=end_ns,
            start_event=row_of_event[alloc],
            end_event=end_event,
            operator=operator[alloc],
            site=site[alloc] if site is not None else np.zeros(len(alloc), np.int32),
            module=module[alloc] if module is not None else np.zeros(len(alloc), np.int32),
            transport=transport[alloc],
            stream=np.zeros(len(alloc), np.int64),
            free_unreported=is_lost,
        ),
        samples=samples,
        warnings=warnings,
    )


def with_mapped(delta: Array, reported: Array) -> Array:
    """The allocator's totals with shared memory in them.

    Mapped files and shared memory (a DataLoader's batches) are reported with a total of 0: they are not the
    allocator's. Where such an event cannot be the allocator's own, its bytes are added to the totals that follow.
    """
    before = np.concatenate([[0], reported[:-1]])
    is_mapped = (reported == 0) & (before + delta != 0)
    if not is_mapped.any():
        return reported
    # The first event may follow a total we never saw, so only what is 0 without being a free to 0 counts.
    rows = np.arange(len(reported))
    last_own = np.maximum.accumulate(np.where(is_mapped, -1, rows))
    own = np.where(last_own >= 0, reported[np.maximum(last_own, 0)], 0)
    is_freed_to_zero = (delta < 0) & (own + delta == 0) & is_mapped
    is_mapped &= ~is_freed_to_zero
    last_own = np.maximum.accumulate(np.where(is_mapped, -1, rows))
    own = np.where(last_own >= 0, reported[np.maximum(last_own, 0)], 0)
    found: Array = own + np.where(is_mapped, delta, 0).cumsum()
    return found


def _next_at_same_address(address: Array) -> Array:
    """For each event the next event at the same address; len(address) when there is none."""
    num = len(address)
    order = np.lexsort((np.arange(num), address))
    follower = np.full(num, num, np.int64)
    if num > 1:
        same = address[order[:-1]] == address[order[1:]]
        follower[order[:-1][same]] = order[1:][same]
    return follower


def _lost_ends(
    alloc: Array, is_paired: Array, follower: Array, t_ns: Array, transport: Array, transport_end_ns: Array
) -> Array:
    """End of each block whose free was not reported, NOT_FREED for the others; see [Note: Unreported frees]."""
    num = len(t_ns)
    follow = follower[alloc]
    reused_ns = np.full(len(alloc), NOT_FREED, np.int64)
    is_reused = ~is_paired & (follow < num)
    reused_ns[is_reused] = t_ns[follow[is_reused]]
    end: Array = reused_ns.copy()
    carried = ~is_paired & (transport[alloc] >= 0)
    end[carried] = np.minimum(transport_end_ns[transport[alloc[carried]]], reused_ns[carried])
    found: Array = np.where(end == NOT_FREED, NOT_FREED, np.maximum(end, t_ns[alloc]))
    return found


def _outlived_ends(
    lost_end: Array, is_open: Array, address: Array, follower: Array, t_ns: Array, tags: dict[str, Array]
) -> Array:
    """Ends of open blocks, but for those a tag names after their end: they live until the address is used again."""
    end: Array = lost_end.copy()
    order = np.lexsort((tags["t_ns"], tags["address"]))
    tag_address, tag_ns = tags["address"][order], tags["t_ns"][order]
    reused_ns = np.append(t_ns, NOT_FREED)[follower]
    for row in np.flatnonzero(is_open & (lost_end < reused_ns)):
        first = np.searchsorted(tag_address, address[row : row + 1])[0]
        last = np.searchsorted(tag_address, address[row : row + 1], "right")[0]
        mine = tag_ns[first:last]
        if np.any((mine > end[row]) & (mine < reused_ns[row])):
            end[row] = reused_ns[row]
    return end


def _dropped_ends(
    lost_end: Array, is_open: Array, address: Array, start_ns: Array, follower: Array, t_ns: Array,
    drops: dict[str, Array],
) -> Array:  # fmt: skip
    """Ends of open blocks on which a watched tensor died: the last such moment before the address was used again."""
    end: Array = lost_end.copy()
    order = np.lexsort((drops["t_ns"], drops["address"]))
    drop_address, drop_ns = drops["address"][order], drops["t_ns"][order]
    reused_ns = np.append(t_ns, NOT_FREED)[follower]
    for row in np.flatnonzero(is_open):
        first, last = (
            np.searchsorted(drop_address, [address[row]]),
            np.searchsorted(drop_address, [address[row]], "right"),
        )
        mine = drop_ns[first[0] : last[0]]
        mine = mine[(mine >= start_ns[row]) & (mine <= reused_ns[row])]
        if len(mine):
            end[row] = mine[-1]
    return end


def _samples(
    t_ns: Array, gained: Array, reported: Array, alloc: Array, is_paired: Array, follower: Array, lost_end: Array,
    delta_bytes: Array,
) -> tuple[Samples, Array, Array]:  # fmt: skip
    """Merge the events with the unreported frees; also the row of each event and of each unreported free."""
    num = len(t_ns)
    change = gained.copy()
    freed = follower[alloc[is_paired]]
    change[freed] = delta_bytes[freed]
    lost = np.flatnonzero(lost_end != NOT_FREED)
    lost_size = delta_bytes[alloc[lost]]
    all_t = np.concatenate([t_ns, lost_end[lost]])
    # At one time an unreported free comes before the alloc that reuses its address, but after its own alloc.
    rank = np.concatenate([np.ones(num, np.int8), np.zeros(len(lost), np.int8)])
    rank[num:][lost_end[lost] == t_ns[alloc[lost]]] = 2
    order = np.lexsort((np.arange(len(all_t)), rank, all_t))
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    delta = np.concatenate([change, -lost_size])[order]
    unreported = np.concatenate([np.zeros(num, np.int64), lost_size])[order].cumsum()
    is_event = order < num
    last_event = np.maximum.accumulate(np.where(is_event, order, 0)) if num else np.zeros(0, np.int64)
    samples = Samples(
        t_ns=all_t[order],
        delta_bytes=delta,
        allocated_bytes=delta.cumsum(),
        reported_bytes=reported[last_event],
        unreported_free_bytes=unreported,
    )
    return samples, row[:num], row[num:]
