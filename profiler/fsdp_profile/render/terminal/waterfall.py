"""The device waterfall: allocated, freed but held, cached, outside PyTorch, and the allocator's pools."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.device_waterfall import StreamPool, Waterfall
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.render.terminal.parts import Field, Grid, heading, note

MAX_POOLS: Final = 12

_MEANING: Final = "cached: reserved, in no block; only allocations of the same stream and pool can use it."
_NO_NVML: Final = "not recorded"


def waterfall_report(found: Waterfall | None) -> RenderableType | None:
    """From what tensors hold to what the device has in use; None where neither was recorded."""
    if found is None:
        return None
    rows: list[tuple[str, int | None, str]] = [
        ("allocated", found.allocated_bytes, "by tensors: the ledger's categories"),
        ("+ held by a stream", found.pending_free_bytes, "freed, and a stream still uses it"),
        ("+ cached", found.reserved_unused_bytes, "reserved, in no block"),
        ("= reserved", found.reserved_bytes, "by PyTorch's allocator"),
        ("+ outside", found.outside_bytes, "not PyTorch's allocator"),
        ("   this process", found.outside_this_process_bytes, "context, communicators, libraries"),
        ("   other processes", found.other_processes_bytes, ""),
        ("= device used", found.device_used_bytes, "as NVML and nvidia-smi say"),
        ("device size", found.device_total_bytes, ""),
    ]
    grid = Grid(
        key=[Field(header="", cells=[word for word, _, _ in rows], justify="left")],
        groups=[
            [
                Field(header="bytes", cells=[_NO_NVML if size is None else bytes_text(size) for _, size, _ in rows]),
                Field(header="", cells=[Text(meaning) for _, _, meaning in rows], justify="left"),
            ]
        ],
    )
    when = "at the peak" if found.event is not None else "NVML's highest sample; no allocator history"
    parts: list[RenderableType] = [heading("Device", f"rank {found.rank}, {when}"), grid]
    if found.pools:
        parts += [Text(), *_pools(found.pools)]
    return Group(*parts)


def _pools(pools: Sequence[StreamPool]) -> list[RenderableType]:
    shown = pools[:MAX_POOLS]
    grid = Grid(
        key=[
            Field(header="stream", cells=[str(p.stream) for p in shown]),
            Field(header="pool", cells=[p.pool or "not told" for p in shown], justify="left"),
        ],
        groups=[
            [Field(header="reserved", cells=[bytes_text(p.reserved_bytes) for p in shown])],
            [Field(header="in blocks", cells=[bytes_text(p.active_bytes) for p in shown])],
            [Field(header="held", cells=[bytes_text(p.pending_bytes) for p in shown])],
            [Field(header="cached", cells=[bytes_text(p.unused_bytes) for p in shown])],
            [Field(header="largest free", cells=[bytes_text(p.largest_free_bytes) for p in shown])],
        ],
    )
    remark = _MEANING
    if len(shown) < len(pools):
        remark += f" The {len(shown)} largest of {len(pools)} pools."
    return [grid, Text(), note(remark)]
