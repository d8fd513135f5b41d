"""Findings about what the allocator and the device hold beyond tensors."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.analysis.memory.device_waterfall import Waterfall, communicators, waterfall
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.ingest.tables import numbers

MIN_SHARE: Final = 0.05
MIN_OUTSIDE: Final = 0.1
"""Share of what the device has in use."""


def pending_frees(run: Run, peak: Peak) -> Iterator[Finding]:
    """Blocks were freed while a stream still uses them (record_stream)."""
    found = _when_most_is_pending(run, peak)
    if found is None or not found.pending_free_bytes or found.reserved_bytes is None or found.allocated_bytes is None:
        return
    held, active = found.pending_free_bytes, found.pending_free_bytes + found.allocated_bytes
    if held < MIN_SHARE * found.reserved_bytes:
        return
    streams = [str(p.stream) for p in found.pools if p.pending_bytes]
    where = f" by stream {', '.join(streams)}" if streams else ""
    yield Finding(
        rule="pending-frees",
        severity=Severity.COSTS,
        claim=f"{bytes_text(held)} are freed but held{where}: {bytes_text(active)} active where tensors hold "
        f"{bytes_text(found.allocated_bytes)}. They are not activations.",
        evidence={"pending_free_bytes": held, "active_bytes": active, "allocated_bytes": found.allocated_bytes},
        action="TORCH_NCCL_AVOID_RECORD_STREAMS=1 (the default of recent torch), or free before the collective ends.",
        saves_bytes=held,
        rank=peak.rank,
    )


def _cached_elsewhere(run: Run, peak: Peak, found: Waterfall) -> Iterator[Finding]:
    """Cached memory in the pools of streams other than the one that allocates most, which cannot use it."""
    if len(found.pools) < 2 or not found.reserved_bytes:
        return
    main, *others = found.pools
    unused = sum(p.unused_bytes for p in others)
    if unused < MIN_SHARE * found.reserved_bytes:
        return
    where = ", ".join(f"stream {p.stream}{f' pool {p.pool}' if p.pool else ''}" for p in others if p.unused_bytes)
    yield Finding(
        rule="cached-elsewhere",
        severity=Severity.COSTS,
        claim=f"{bytes_text(unused)} are cached for {where} and cannot serve stream {main.stream}.",
        evidence={"unused_bytes": unused, "reserved_bytes": found.reserved_bytes, "num_pools": len(found.pools)},
        action="Fewer streams that allocate; torch.cuda.empty_cache() after set-up gives back what only set-up used.",
        saves_bytes=unused,
        rank=peak.rank,
    )


def _fragmentation(run: Run, peak: Peak, found: Waterfall) -> Iterator[Finding]:
    """Much memory is cached, in pieces that are all small."""
    if not found.reserved_bytes or not found.reserved_unused_bytes:
        return
    if found.largest_free_bytes is None:
        return
    in_pieces = found.reserved_unused_bytes - found.largest_free_bytes
    if in_pieces < MIN_SHARE * found.reserved_bytes:
        return
    yield Finding(
        rule="fragmentation",
        severity=Severity.COSTS,
        claim=f"{bytes_text(found.reserved_unused_bytes)} of {bytes_text(found.reserved_bytes)} reserved are cached, "
        f"and the largest piece is {bytes_text(found.largest_free_bytes)}.",
        evidence={
            "reserved_unused_bytes": found.reserved_unused_bytes,
            "largest_free_bytes": found.largest_free_bytes,
            "reserved_bytes": found.reserved_bytes,
        },
        action="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins the pieces of one stream.",
        saves_bytes=in_pieces,
        is_estimate=True,
        rank=peak.rank,
    )


def _outside_pytorch(run: Run, peak: Peak, found: Waterfall) -> Iterator[Finding]:
    """The device has more in use than PyTorch's allocator: context, communicators, other processes."""
    if found.device_used_bytes is None or found.outside_bytes is None or found.reserved_bytes is None:
        return
    if found.outside_bytes < MIN_OUTSIDE * found.device_used_bytes:
        return
    groups = communicators(run, rank=peak.rank)
    live = found.allocated_bytes or 0
    split = f"{bytes_text(live)} live + {bytes_text(found.reserved_bytes - live)} cached"
    named = f"; {len(groups)} communicators ({', '.join(g.label for g in groups)})" if groups else ""
    yield Finding(
        rule="outside-pytorch",
        severity=Severity.EXPLAINS,
        claim=f"The device has {bytes_text(found.device_used_bytes)} in use: {split} + "
        f"{bytes_text(found.outside_bytes)} outside PyTorch's allocator{named}.",
        evidence={
            "device_used_bytes": found.device_used_bytes,
            "reserved_bytes": found.reserved_bytes,
            "outside_bytes": found.outside_bytes,
            "num_communicators": len(groups),
        },
        action="Each NCCL communicator takes some hundred MB: reuse process groups. Set CUDA_VISIBLE_DEVICES or "
        "torch.cuda.set_device before the first CUDA call, so that no rank opens a context on device 0.",
        rank=peak.rank,
    )


def _other_processes(run: Run, peak: Peak, found: Waterfall) -> Iterator[Finding]:
    """Other processes use the rank's device."""
    other = found.other_processes_bytes
    if not other or not found.device_used_bytes or other < MIN_SHARE * found.device_used_bytes:
        return
    yield Finding(
        rule="other-processes",
        severity=Severity.COSTS,
        claim=f"Other processes use {bytes_text(other)} of this rank's device "
        f"({ratio_text(other / found.device_used_bytes)} of what is in use).",
        evidence={"other_processes_bytes": other, "device_used_bytes": found.device_used_bytes},
        action="End them; if they are ranks of this job, each opened a context on this device (see outside-pytorch).",
        saves_bytes=other,
        rank=peak.rank,
    )


def _when_most_is_pending(run: Run, peak: Peak) -> Waterfall | None:
    samples = run.table("memory_samples", rank=peak.rank)
    if samples.num_rows == 0 or samples.column("active_bytes").null_count:
        return None
    pending = numbers(samples, "active_bytes") - numbers(samples, "allocated_bytes")
    return waterfall(run, rank=peak.rank, event=int(np.argmax(pending)))


def at_the_peak(run: Run, peak: Peak) -> Iterator[Finding]:
    """Findings from the waterfall at the peak: cached memory, fragmentation, and memory outside PyTorch."""
    found = waterfall(run, rank=peak.rank)
    if found is not None:
        for rule in (_cached_elsewhere, _fragmentation, _outside_pytorch, _other_processes):
            yield from rule(run, peak, found)


RULES: Final = (pending_frees, at_the_peak)
