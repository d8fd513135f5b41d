"""Ranks side by side: peaks, step times and how each process ended.

The summary of a rank is cached (cache.py): for a thousand ranks a thousand small files are read, not their tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fsdp_profile.analysis.cache import cached_of_rank, store_in_run
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.ingest.tables import numbers

SUMMARY: Final = "summary"
"""Name of the cached answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSummary:
    """The peaks, the step times and the ending of one rank."""

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
    """The manifest's record of the rank's process."""


def rank_summary(run: Run, *, rank: int) -> RankSummary:
    """Summary of one rank."""
    return replace(_cached(run, rank), record=next((r for r in run.manifest.ranks if r.rank == rank), None))


def _cached(run: Run, rank: int) -> RankSummary:
    return cached_of_rank(run, SUMMARY, RankSummary, rank=rank, compute=lambda: _of_tables(run, rank))


def _of_tables(run: Run, rank: int) -> RankSummary:
    duration = step_durations_ns(run, rank=rank)
    rss = run.table("device_samples", rank=rank).column("host_rss_bytes").drop_null()
    return RankSummary(
        rank=rank,
        peak=ledger.peak(run, rank=rank),
        setup_peak_bytes=ledger.setup_peak_bytes(run, rank=rank),
        reserved_peak_bytes=ledger.reserved_peak_bytes(run, rank=rank),
        device_used_peak_bytes=ledger.device_used_peak_bytes(run, rank=rank),
        host_rss_peak_bytes=int(np.max(rss.to_numpy())) if len(rss) else None,
        num_steps=len(duration),
        median_step_ns=int(np.median(duration[1:])) if len(duration) > 1 else None,
        record=None,  # it comes from the manifest, which may be written later
    )


def rank_summaries(run: Run) -> list[RankSummary]:
    """Summaries of all ranks that recorded something here."""
    records = {record.rank: record for record in run.manifest.ranks}
    return [replace(_cached(run, rank), record=records.get(rank)) for rank in run.ranks]


def store_summaries(run: Run) -> None:
    """Write the summary of each rank into the run itself, where it is read without the rank's tables."""
    for rank in run.ranks:
        store_in_run(run, SUMMARY, _of_tables(run, rank), rank=rank)


def worst_rank(run: Run) -> int | None:
    """The rank with the highest peak over the training steps (the lowest such rank); None without events."""
    found = worst_peak(rank_summaries(run))
    return found.rank if found is not None else None


def worst_peak(ranks: Iterable[RankSummary]) -> Peak | None:
    """The highest peak of some ranks (of equal ones the lowest rank's); None without events."""
    peaks = [found.peak for found in ranks if found.peak is not None]
    return max(peaks, key=lambda p: (p.allocated_bytes, -p.rank), default=None)


def step_durations_ns(run: Run, *, rank: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Length of each complete training step, in order."""
    steps = run.table("steps", rank=rank)
    keep = (numbers(steps, "step") >= 0) & steps.column("complete").to_numpy(zero_copy_only=False)
    duration: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        numbers(steps, "end_ns")[keep] - numbers(steps, "start_ns")[keep]
    )
    return duration
