"""Queries of the Collectives page: collectives of one rank, and those of all ranks matched; cached like data.py."""

from collections.abc import Sequence

import pyarrow as pa
import streamlit as st

from fsdp_dashboard.data import Damage, RunFacts, RunRef, ask
from fsdp_profile.analysis.collectives import cross_rank as matching
from fsdp_profile.analysis.collectives import timeline, traffic
from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary, collective_summary
from fsdp_profile.analysis.collectives.timeline import (
    BY_GROUP,
    BY_KIND,
    BY_RANK,
    BY_UNIT,
    CallTotal,
    StepCalls,
    StepTotal,
    call_totals,
)
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.time import breakdown
from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.core.errors import InputError


def rank_reported(run: RunFacts, rank: int | None) -> int:
    """The rank asked for, or the one that `show --json` reports: with the highest peak, else the first.

    Raises:
        InputError: no such rank.
    """
    known = [r.rank for r in run.ranks]
    if rank is None and known:
        return run.worst.rank if run.worst is not None else known[0]
    if rank is None or rank not in known:
        raise InputError(f"it has no rank {rank}; choose another rank" if known else "no rank recorded anything in it")
    return rank


def summary(ref: RunRef, *, rank: int) -> CollectiveSummary | None:
    """Totals over the training steps; None when no collectives were recorded."""
    found: CollectiveSummary | None = ask(collective_summary, ref, rank=rank)
    return found


def step_totals(ref: RunRef, *, rank: int) -> list[StepTotal]:
    """The steps of a rank that have collectives."""
    found: list[StepTotal] = ask(timeline.step_totals, ref, rank=rank)
    return found


def most_exposed(totals: Sequence[StepTotal]) -> int:
    """The step with most exposed time, or with most collective time where that is not known; the first of equals."""
    return max(totals, key=lambda total: total.total_ns if total.exposed_ns is None else total.exposed_ns).step


def step_traffic(ref: RunRef, *, rank: int) -> StepTraffic | None:
    """What one step moves; None without a complete step whose collectives are all of known size and group."""
    found: StepTraffic | None = ask(traffic.step_traffic, ref, rank=rank)
    return found


def step_breakdowns(ref: RunRef, *, rank: int) -> dict[int, TimeBreakdown]:
    """Step -> where its time went; empty where no kernels or operators were recorded."""
    found: dict[int, TimeBreakdown] = ask(breakdown.step_breakdowns, ref, rank=rank)
    return found


def cross_rank(ref: RunRef) -> CrossRank:
    """The collectives of all ranks, matched."""
    found: CrossRank = ask(matching.cross_rank, ref)
    return found


def by_kind(ref: RunRef, *, rank: int | None) -> list[CallTotal]:
    """Sums over the calls of each kind, of a rank or of all."""
    return call_totals(_calls(ref, rank), BY_KIND)


def by_group(ref: RunRef, *, rank: int | None) -> list[CallTotal]:
    """Sums over the calls of each process group."""
    return call_totals(_calls(ref, rank), BY_GROUP)


def by_unit(ref: RunRef, *, rank: int | None) -> list[CallTotal]:
    """Sums over the calls of each unit."""
    return call_totals(_calls(ref, rank), BY_UNIT)


def by_rank(ref: RunRef) -> list[CallTotal]:
    """Sums over the calls of each rank."""
    return call_totals(_calls(ref, None), BY_RANK)


def step_calls(ref: RunRef, *, rank: int | None, step: int) -> StepCalls:
    """The calls of one step of a rank, or of all."""
    with Damage(ref.label):
        return _step_calls(str(ref.path), ref.stamp, rank, step, _cross_rank=cross_rank(ref), _calls=_calls(ref, rank))


def _calls(ref: RunRef, rank: int | None) -> pa.Table:
    with Damage(ref.label):
        return _cached_calls(str(ref.path), ref.stamp, rank, _cross_rank=cross_rank(ref))


@st.cache_data(max_entries=64, show_spinner="Reading the collectives")
def _cached_calls(path: str, stamp: tuple[int, int], rank: int | None, *, _cross_rank: CrossRank) -> pa.Table:
    return timeline.collective_calls(load_run(path), _cross_rank, rank=rank)


@st.cache_data(max_entries=64, show_spinner="Reading the collectives")
def _step_calls(
    path: str, stamp: tuple[int, int], rank: int | None, step: int, *, _cross_rank: CrossRank, _calls: pa.Table
) -> StepCalls:
    return timeline.step_calls(load_run(path), _cross_rank, _calls, rank=rank, step=step)
