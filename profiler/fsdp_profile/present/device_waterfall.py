"""The device waterfall: from what tensors hold to what the device has in use, one table for every renderer."""

from collections.abc import Sequence
from typing import Final

from fsdp_profile.analysis.memory.device_waterfall import Communicator, StreamPool, Waterfall
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.present.memory import step_text
from fsdp_profile.present.values import Table, Unit, column, table

ALLOCATED: Final = "allocated"
HELD: Final = "freed but held by a stream"
CACHED: Final = "cached"
RESERVED: Final = "reserved"
OUTSIDE: Final = "outside PyTorch"
THIS_PROCESS: Final = "outside PyTorch, this process"
OTHERS: Final = "outside PyTorch, other processes"
USED: Final = "device used"
COMMUNICATORS_NOTE: Final = (
    "Process groups that communicated, in order of their first collective. Each has a communicator, whose buffers are "
    "outside PyTorch's allocator; how large they are is not recorded."
)
CACHED_NOTE: Final = (
    "Cached: reserved by the allocator and in no block; only allocations of the same stream and pool can use it."
)


def waterfall_table(found: Waterfall, *, when: str = "at the peak") -> Table:
    """The levels of the device and the parts between them; '+' adds a part, '=' is the level that follows.

    Args:
        found: the moment.
        when: what moment it is.
    """
    rows: list[tuple[str, int | None, str]] = [
        (ALLOCATED, found.allocated_bytes, "by tensors: the sum of all categories"),
        (f"+ {HELD}", found.pending_free_bytes, "freed while a stream still used it"),
        (f"+ {CACHED}", found.reserved_unused_bytes, "reserved, in no block"),
        (f"= {RESERVED}", found.reserved_bytes, "by PyTorch's caching allocator"),
        (f"+ {OUTSIDE}", found.outside_bytes, "not from PyTorch's allocator"),
        ("   of it this process", found.outside_this_process_bytes, "CUDA context, communicators, libraries"),
        ("   of it other processes", found.other_processes_bytes, "on the same device"),
        (f"= {USED}", found.device_used_bytes, "as NVML and nvidia-smi report"),
        ("device size", found.device_total_bytes, ""),
    ]
    if found.event is None:
        when = "at NVML's highest sample: no allocator history"
    return table(
        "Device",
        [
            column("level", Unit.TEXT, [label for label, _, _ in rows]),
            column("bytes", Unit.BYTES, [size for _, size, _ in rows]),
            column("what it is", Unit.TEXT, [meaning for _, _, meaning in rows], follows=True),
        ],
        note=f"rank {found.rank}, {when}",
    )


def waterfall_parts(found: Waterfall) -> list[tuple[str, int]]:
    """The parts with bytes, from the left of a bar; they add up to the highest level that was recorded."""
    if found.reserved_bytes is None:
        inside: list[tuple[str, int | None]] = []
        whole, mine, label = found.device_used_bytes, found.process_used_bytes, USED
    else:
        inside = [
            (ALLOCATED, found.allocated_bytes),
            (HELD, found.pending_free_bytes),
            (CACHED, found.reserved_unused_bytes),
        ]
        whole, mine, label = found.outside_bytes, found.outside_this_process_bytes, OUTSIDE
    others = found.other_processes_bytes
    # A sample of NVML and an event are not at one moment: a split that does not add up is not drawn.
    if mine is not None and others is not None and min(mine, others) >= 0:
        outside = [(THIS_PROCESS, mine), (OTHERS, others)]
    else:
        outside = [(label, whole if whole is not None and whole > 0 else 0)]
    return [(part, size) for part, size in [*inside, *outside] if size]


def title(found: Waterfall) -> tuple[str, str]:
    """The highest level that was recorded, and what stands beside it."""
    size = "" if found.device_total_bytes is None else f" of {bytes_text(found.device_total_bytes)}"
    if found.device_used_bytes is not None:
        return f"{USED} {bytes_text(found.device_used_bytes)}", size
    return f"{RESERVED} {bytes_text(found.reserved_bytes)}", f"{size}, device used not recorded"


def moment(found: Waterfall) -> str:
    """When the waterfall was, where that needs a word; '' elsewhere."""
    if found.event is None:
        return "NVML's highest sample: the allocator's own totals are not recorded."
    parts = (found.outside_bytes, found.outside_this_process_bytes, found.other_processes_bytes)
    if any(size is not None and size < 0 for size in parts):
        return "NVML's nearest sample is from another moment than the allocator's event, so the levels do not add up."
    return ""


def pools_table(pools: Sequence[StreamPool]) -> Table:
    """What the allocator holds for each stream in each pool."""
    return table(
        "",
        [
            column("stream", Unit.TEXT, [str(p.stream) for p in pools]),
            column("pool", Unit.TEXT, [p.pool or "not recorded" for p in pools]),
            column("reserved", Unit.BYTES, [p.reserved_bytes for p in pools]),
            column("in blocks", Unit.BYTES, [p.active_bytes for p in pools]),
            column("held by a stream", Unit.BYTES, [p.pending_bytes for p in pools]),
            column("cached", Unit.BYTES, [p.unused_bytes for p in pools]),
            column("largest free", Unit.BYTES, [p.largest_free_bytes for p in pools]),
        ],
        note=CACHED_NOTE,
        num_keys=2,
    )


def communicators_table(found: Sequence[tuple[Communicator, int | None, int | None]]) -> Table:
    """Process groups in order of their first collective: the step it was in, and ns since that step began."""
    names = [" ".join(filter(None, [group.description, group.group])) for group, _, _ in found]
    return table(
        "Communicators",
        [
            column("communicator", Unit.NAME, names),
            column("ranks", Unit.COUNT, [group.group_size for group, _, _ in found]),
            column("first used", Unit.TEXT, [_first_use(step, in_step_ns) for _, step, in_step_ns in found]),
        ],
        note=COMMUNICATORS_NOTE,
    )


def _first_use(step: int | None, in_step_ns: int | None) -> str | None:
    if step is None:
        return None
    return f"{step_text(step) if step < 0 else f'step {step}'}, after {ns_text(in_step_ns)}"
