"""The document of `show --json`: every number of a run that other programs may rely on.

Keys are stable. Absent measurements are null, with the reason in "not_recorded".
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from fsdp_profile.analysis.collectives.cross_rank import CrossRank, by_kind, cross_rank
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary, collective_summary
from fsdp_profile.analysis.collectives.timeline import BY_GROUP, CallTotal, call_totals, collective_calls
from fsdp_profile.analysis.collectives.traffic import StepTraffic, step_traffic
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.why_not_smaller import why_not_smaller
from fsdp_profile.analysis.memory.call_sites import modules_at, source_lines
from fsdp_profile.analysis.memory.device_waterfall import Waterfall, waterfall
from fsdp_profile.analysis.memory.growth import growth, kept_unsharded
from fsdp_profile.analysis.memory.host_states import host_states
from fsdp_profile.analysis.memory.ledger import Peak, conservation, peak_of_phases
from fsdp_profile.analysis.memory.postmortem import PostMortem, post_mortems
from fsdp_profile.analysis.ranks.overview import RankSummary, rank_summaries, worst_peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import unit_names
from fsdp_profile.analysis.time.breakdown import exposed_by_step, step_breakdowns
from fsdp_profile.analysis.units.in_flight import in_flight
from fsdp_profile.analysis.units.summaries import UnitSummary, unit_summaries
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import SCHEMA_VERSION

_ON_CPU = {
    "reserved_peak_bytes": "the CPU allocator has no reserved pool",
    "device_used_peak_bytes": "the ranks ran on CPU",
}
_ON_DEVICE = {
    "reserved_peak_bytes": "the allocator's history was not recorded",
    "device_used_peak_bytes": "NVML gave no sample of the device",
}


def why_null(run: Run) -> dict[str, str]:
    """Field of `show --json` -> why it is null in this run, the manifest's own word first."""
    manifest = run.manifest
    return {**(_ON_CPU if manifest.device_type == "cpu" else _ON_DEVICE), **manifest.not_recorded}


def run_summary(run: Run, *, rank: int | None = None) -> dict[str, Any]:
    """The whole document, of plain JSON types. Units, collectives and steps are those of one rank, else the worst."""
    manifest = run.manifest
    ranks = rank_summaries(run)
    rank = _shown(run, ranks) if rank is None else rank
    collectives = collective_summary(run, rank=rank) if rank is not None else None
    matches = cross_rank(run)
    missing = _missing(run, ranks=ranks, rank=rank, collectives=collectives)
    return {
        "schema": SCHEMA_VERSION,
        "run": {
            "name": run.name,
            "strategy": str(manifest.strategy),
            "strategy_detail": manifest.strategy_detail,
            "world_size": manifest.world_size,
            "device_type": manifest.device_type,
            "device_name": manifest.device_name,
            "torch": manifest.versions.get("torch"),
            "complete": manifest.complete,
            "created": manifest.created,
            "command": manifest.command,
            "model": msgspec.to_builtins(manifest.model),
            "sources": dict(manifest.sources),
        },
        "ranks": [_rank(run, r) for r in ranks],
        "reported_rank": rank,
        "units": [_unit(u) for u in unit_summaries(run, rank=rank)] if rank is not None else [],
        "in_flight": [asdict(found) for found in in_flight(run, rank=rank)] if rank is not None else [],
        "collectives": _collectives(
            collectives,
            step_traffic(run, rank=rank) if rank is not None else None,
            call_totals(collective_calls(run, matches, rank=rank), BY_GROUP) if rank is not None else (),
        ),
        "time_by_step": _time(run, rank) if rank is not None else [],
        "across_ranks": _cross_rank(matches),
        "growth": _growth(run, rank) if rank is not None else [],
        "kept_unsharded": [asdict(kept) for kept in kept_unsharded(run, rank=rank)] if rank is not None else [],
        "post_mortems": [_post_mortem(found) for found in post_mortems(run)],
        "findings": [asdict(found) for found in findings(run)],
        "why_not_smaller": [asdict(test) for test in why_not_smaller(run)],
        "receipt": msgspec.to_builtins(manifest.receipt),
        "warnings": list(manifest.warnings),
        "not_recorded": missing,
    }


def not_recorded(run: Run) -> dict[str, str]:
    """What the whole document says under "not_recorded", without the rest of it: field -> why it is null."""
    ranks = rank_summaries(run)
    rank = _shown(run, ranks)
    collectives = collective_summary(run, rank=rank) if rank is not None else None
    return _missing(run, ranks=ranks, rank=rank, collectives=collectives)


def _shown(run: Run, ranks: Sequence[RankSummary]) -> int | None:
    """The rank with the highest peak, else the first one; None where nobody recorded anything."""
    found = worst_peak(ranks)
    return found.rank if found is not None else next(iter(run.ranks), None)


def _missing(
    run: Run, *, ranks: list[RankSummary], rank: int | None, collectives: CollectiveSummary | None
) -> dict[str, str]:
    found = dict(run.manifest.not_recorded)
    for field, why in why_null(run).items():
        if any(getattr(r, field, 0) is None for r in ranks):
            found.setdefault(field, why)
    if collectives is None:
        found.setdefault("collectives", "no collectives were recorded in the training steps")
    elif rank is not None and step_traffic(run, rank=rank) is None:
        found.setdefault("per_step", "no complete step with collectives of known size and group")
    if not any(r.peak for r in ranks):
        found.setdefault("peak", "no allocator events of a training step were recorded")
    if not any(r.setup_peak_bytes is not None for r in ranks):
        found.setdefault("setup_peak_bytes", "no allocator events before the first forward were recorded")
    return found


def _rank(run: Run, summary: RankSummary) -> dict[str, Any]:
    law = conservation(run, rank=summary.rank)
    record = summary.record
    return {
        "rank": summary.rank,
        "peak": _peak(summary.peak),
        "setup_peak_bytes": summary.setup_peak_bytes,
        "reserved_peak_bytes": summary.reserved_peak_bytes,
        "device_used_peak_bytes": summary.device_used_peak_bytes,
        "host_rss_peak_bytes": summary.host_rss_peak_bytes,
        "waterfall": _waterfall(waterfall(run, rank=summary.rank)),
        "host_states": _host_states(run, summary.rank),
        "source_lines": _sites(run, summary.peak),
        "modules": _modules(run, summary.peak),
        "peak_of_phases": {
            phase: {"allocated_bytes": found.allocated_bytes, "step": found.step, "t_ns": found.t_ns}
            for phase, found in peak_of_phases(run, rank=summary.rank).items()
        },
        "num_steps": summary.num_steps,
        "median_step_ns": summary.median_step_ns,
        "ending": str(record.ending) if record else None,
        "exit_code": record.exit_code if record else None,
        "conservation": {
            "num_events": law.num_events,
            "category_errors": law.category_errors,
            "reported_errors": law.reported_errors,
        },
    }


def _growth(run: Run, rank: int) -> list[dict[str, Any]]:
    names = unit_names(run, rank=rank)
    found = [asdict(one) for one in growth(run, rank=rank)]
    for one in found:
        for site in one["sites"]:
            site["unit"] = names.get(site["unit"])
    return found


def _waterfall(found: Waterfall | None) -> dict[str, Any] | None:
    """At the rank's peak; see analysis/waterfall.py."""
    if found is None:
        return None
    derived = ("outside_bytes", "outside_this_process_bytes", "other_processes_bytes")
    return {**asdict(found), **{name: getattr(found, name) for name in derived}}


def _host_states(run: Run, rank: int) -> dict[str, Any] | None:
    """Under CPU offload on a device; else None."""
    found = host_states(run, rank=rank)
    return None if found is None else {**asdict(found), "by_category": _by_name(found.by_category)}


def _by_name(by_category: Mapping[Category, int]) -> dict[str, int]:
    return {str(category): size for category, size in by_category.items()}


def _post_mortem(found: PostMortem) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "t_ns": found.t_ns,
        "asked_bytes": found.asked_bytes,
        "free_bytes": found.free_bytes,
        "room_bytes": found.room_bytes,
        "live": _peak(found.then),
        "waterfall": _waterfall(found.device),
        "other_ranks": [asdict(other) for other in found.others],
        "remedies": [asdict(remedy) for remedy in found.remedies],
    }


def _peak(found: Peak | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "allocated_bytes": found.allocated_bytes,
        "step": found.step,
        "phase": found.phase,
        "unit": found.unit_name,
        "t_ns": found.t_ns,
        "by_category": _by_name(found.by_category),
        "unknown_ratio": found.unknown_ratio,
    }


def _modules(run: Run, found: Peak | None) -> list[dict[str, Any]] | None:
    modules = modules_at(run, rank=found.rank, event=found.event) if found is not None else None
    return None if modules is None else [asdict(module) for module in modules]


def _sites(run: Run, found: Peak | None) -> list[dict[str, Any]] | None:
    """Source lines at a peak; None without --stacks."""
    lines = source_lines(run, rank=found.rank, event=found.event) if found is not None else None
    if lines is None:
        return None
    return [{**asdict(line), "by_category": _by_name(line.by_category)} for line in lines]


def _unit(summary: UnitSummary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "kind": summary.kind,
        "numel": summary.numel,
        "sharded_bytes": summary.sharded_bytes,
        "unsharded_bytes": summary.unsharded_bytes,
        "shard_size": summary.shard_size,
        "replicate_size": summary.replicate_size,
        "num_gathers": summary.num_gathers,
        "num_reshards": summary.num_reshards,
        "gathered_ns": summary.gathered_ns,
        "all_gather_ns": summary.all_gather_ns,
        "reduce_scatter_ns": summary.reduce_scatter_ns,
        "exposed_ns": summary.exposed_ns,
    }


def _collectives(
    summary: CollectiveSummary | None, per_step: StepTraffic | None, by_group: Sequence[CallTotal]
) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {
        "total_ns": summary.total_ns,
        "exposed_ns": summary.exposed_ns,
        "overlapped_ns": summary.overlapped_ns,
        "by_kind": {
            kind: {
                "count": total.count,
                "bytes": total.size_bytes,
                "ns": total.total_ns,
                "exposed_ns": total.exposed_ns,
            }
            for kind, total in summary.by_kind.items()
        },
        "per_step": asdict(per_step) if per_step is not None else None,
        "by_group": [
            {
                **dict(zip(BY_GROUP, total.key, strict=True)),
                "count": total.count,
                "bytes": total.size_bytes,
                "ns": total.total_ns,
                "exposed_ns": total.exposed_ns,
                "algbw_bytes_per_s": total.algbw_bytes_per_s,
                "busbw_bytes_per_s": total.busbw_bytes_per_s,
            }
            for total in by_group
        ],
    }


def _time(run: Run, rank: int) -> list[dict[str, Any]]:
    """The parts of each step, and its collectives by phase and kind."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in exposed_by_step(run, rank=rank).to_pylist():
        rows.setdefault(row.pop("step"), []).append(row)
    return [
        {"step": step, **asdict(found), "overlapped_ns": found.overlapped_ns, "collectives": rows.get(step, [])}
        for step, found in step_breakdowns(run, rank=rank).items()
    ]


def _cross_rank(found: CrossRank) -> dict[str, Any]:
    """Waits are sums over the ranks, transfers over the collectives, bandwidths medians; offsets by rank."""
    clock = found.clock
    offsets = None if clock.offset_ns is None else {str(rank): ns for rank, ns in sorted(clock.offset_ns.items())}
    return {
        "matched": found.num_matched,
        "unmatched": found.num_unmatched,
        "unmatched_why": dict(found.unmatched),
        "clock": {"offset_ns": offsets, "residual_ns": clock.residual_ns, "reason": clock.reason},
        "stragglers": [asdict(straggler) for straggler in found.stragglers],
        "never_joined": [asdict(lost) for lost in found.never_joined],
        "by_kind": {
            kind: {
                "matched": total.count,
                "wait_ns": total.wait_ns,
                "transfer_ns": total.transfer_ns,
                "busbw_bytes_per_s": total.busbw_bytes_per_s,
            }
            for kind, total in by_kind(found).items()
        },
    }
