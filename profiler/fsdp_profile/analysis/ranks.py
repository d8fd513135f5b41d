"""Ranks side by side: peaks, step times and how each process ended."""

from dataclasses import dataclass

import numpy as np

from fsdp_profile.analysis import memory
from fsdp_profile.analysis.memory import Peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.manifest import RankRecord
from fsdp_profile.ingest.tables import numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSummary:
    """What one rank used and how it ended."""

    rank: int
    peak: Peak | None
    """Over the training steps; None when no allocator events were recorded."""
    setup_peak_bytes: int | None
    reserved_peak_bytes: int | None
    device_used_peak_bytes: int | None
    host_rss_peak_bytes: int | None
    num_steps: int
    """Complete training steps."""
    median_step_ns: int | None
    """Over complete steps after the first; None with fewer than two."""
    record: RankRecord | None
    """The manifest's word on the rank's process."""


def rank_summary(run: Run, *, rank: int) -> RankSummary:
    """Summary of one rank."""
    duration = step_durations_ns(run, rank=rank)
    rss = run.table("device_samples", rank=rank).column("host_rss_bytes").drop_null()
    return RankSummary(
        rank=rank,
        peak=memory.peak(run, rank=rank),
        setup_peak_bytes=memory.setup_peak_bytes(run, rank=rank),
        reserved_peak_bytes=memory.reserved_peak_bytes(run, rank=rank),
        device_used_peak_bytes=memory.device_used_peak_bytes(run, rank=rank),
        host_rss_peak_bytes=int(np.max(rss.to_numpy())) if len(rss) else None,
        num_steps=len(duration),
        median_step_ns=int(np.median(duration[1:])) if len(duration) > 1 else None,
        record=next((r for r in run.manifest.ranks if r.rank == rank), None),
    )


def rank_summaries(run: Run) -> list[RankSummary]:
    """Summaries of all ranks that recorded something here."""
    return [rank_summary(run, rank=rank) for rank in run.ranks]


def worst_rank(run: Run) -> int | None:
    """The rank with the highest peak over the training steps (the lowest such rank); None without events."""
    peaks = [p for rank in run.ranks if (p := memory.peak(run, rank=rank)) is not None]
    return max(peaks, key=lambda p: (p.allocated_bytes, -p.rank)).rank if peaks else None


def step_durations_ns(run: Run, *, rank: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Length of each complete training step, in order."""
    steps = run.table("steps", rank=rank)
    keep = (numbers(steps, "step") >= 0) & steps.column("complete").to_numpy(zero_copy_only=False)
    duration: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        numbers(steps, "end_ns")[keep] - numbers(steps, "start_ns")[keep]
    )
    return duration
