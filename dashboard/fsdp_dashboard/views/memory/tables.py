"""The device, growth and failed allocations to tables that people read and sort. As in tables.py."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.tables import size_cells, step_name, unit_name
from fsdp_dashboard.views.memory.queries import FirstUse
from fsdp_profile.analysis.memory.device_waterfall import StreamPool, Waterfall
from fsdp_profile.analysis.memory.growth import Site
from fsdp_profile.analysis.memory.postmortem import OtherRank, PostMortem
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text


def waterfall_table(found: Waterfall) -> pa.Table:
    """From what tensors hold to what the device has in use; '+' adds, '=' is a level."""
    rows = [
        ("allocated", found.allocated_bytes, "by tensors: the categories"),
        ("+ held by a stream", found.pending_free_bytes, "freed, and a stream still uses it"),
        ("+ cached", found.reserved_unused_bytes, "reserved, in no block"),
        ("= reserved", found.reserved_bytes, "by PyTorch's allocator"),
        ("+ outside", found.outside_bytes, "not PyTorch's allocator"),
        ("outside: this process", found.outside_this_process_bytes, "context, communicators, libraries"),
        ("outside: other processes", found.other_processes_bytes, ""),
        ("= device used", found.device_used_bytes, "as NVML and nvidia-smi say"),
        ("device size", found.device_total_bytes, ""),
    ]
    return pa.table(
        {
            "level": [name for name, _, _ in rows],
            "bytes": [bytes_text(size) for _, size, _ in rows],
            "what it is": [meaning for _, _, meaning in rows],
        }
    )


def pools_table(pools: Sequence[StreamPool]) -> pa.Table:
    """One row per stream and pool."""
    scale = byte_scale(max((p.reserved_bytes for p in pools), default=0))
    return pa.table(
        {
            "stream": [str(p.stream) for p in pools],
            "pool": [p.pool or "not told" for p in pools],
            f"reserved ({scale.name})": size_cells([p.reserved_bytes for p in pools], scale),
            f"in blocks ({scale.name})": size_cells([p.active_bytes for p in pools], scale),
            f"held ({scale.name})": size_cells([p.pending_bytes for p in pools], scale),
            f"cached ({scale.name})": size_cells([p.unused_bytes for p in pools], scale),
            f"largest free ({scale.name})": size_cells([p.largest_free_bytes for p in pools], scale),
        }
    )


def communicators_table(found: Sequence[FirstUse]) -> pa.Table:
    """One row per process group, in order of first use."""
    return pa.table(
        {
            "communicator": [" ".join(filter(None, [f.communicator.description, f.communicator.group])) for f in found],
            "ranks": pa.array([f.communicator.group_size for f in found], pa.int64()),
            "first used": pa.array([_first_use(f) for f in found], pa.string()),
        }
    )


def _first_use(found: FirstUse) -> str | None:
    if found.step is None:
        return None
    step = step_name(found.step) if found.step < 0 else f"step {found.step}"
    return f"{step}, after {ns_text(found.in_step_ns)}"


def sites_table(sites: Sequence[Site], names: Mapping[int, str]) -> pa.Table:
    """Where the blocks come from that outlived their step."""
    scale = byte_scale(max((site.bytes_per_step for site in sites), default=0))
    return pa.table(
        {
            f"a step ({scale.name})": size_cells([site.bytes_per_step for site in sites], scale),
            "blocks": [site.num_blocks for site in sites],
            "phase": [site.phase for site in sites],
            "unit": [unit_name(site.unit, names) for site in sites],
            "tensor": [site.name for site in sites],
            "allocated by": [site.operator for site in sites],
        }
    )


def others_table(others: Sequence[OtherRank]) -> pa.Table:
    """Where the other ranks were."""
    sizes = [other.allocated_bytes for other in others]
    scale = byte_scale(max((size for size in sizes if size is not None), default=0))
    idle = "(no unit at work)"
    units = [idle if o.unit_name is None else unit_text(o.unit_name) for o in others]
    known = [size is not None for size in sizes]
    return pa.table(
        {
            "rank": [other.rank for other in others],
            f"allocated ({scale.name})": size_cells(sizes, scale),
            "step": [None if o.step is None else step_name(o.step) for o in others],
            "phase": pa.array([o.phase for o in others], pa.string()),
            "unit": pa.array([u if k else None for u, k in zip(units, known, strict=True)], pa.string()),
        }
    )


def failures_table(found: Sequence[PostMortem]) -> pa.Table:
    """One row per failed allocation."""
    asked = [p.asked_bytes for p in found]
    scale = byte_scale(max((size for size in asked if size is not None), default=0))
    live = byte_scale(max((p.then.allocated_bytes for p in found), default=0))
    return pa.table(
        {
            "rank": [p.rank for p in found],
            "step": [step_name(p.then.step) for p in found],
            "phase": [p.then.phase for p in found],
            "unit": ["" if p.then.unit_name is None else unit_text(p.then.unit_name) for p in found],
            f"asked ({scale.name})": size_cells(asked, scale),
            f"allocated ({live.name})": size_cells([p.then.allocated_bytes for p in found], live),
        }
    )
