"""The manifest of a run whose ranks have ended: what they recorded, what it cost, and what to warn about."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from fsdp_profile.core import layout
from fsdp_profile.core.manifest import Manifest, Model, RankRecord, Receipt
from fsdp_profile.core.schema import Ending
from fsdp_profile.core.units import find_strategy
from fsdp_profile.ingest.rank.facts import RankFacts

MIN_STEPS: Final = 3  # fewer have no meaningful median


def make_receipt(run_dir: Path, facts: list[RankFacts], convert_ns: int) -> Receipt:
    """What recording and converting cost."""
    raw = (p for f in facts for p in layout.raw_dir(run_dir, f.rank).glob("*") if p.is_file())
    ends = [f.known for f in facts]
    recorded = [ns for f in facts for ns in f.recorded_steps_ns]
    unrecorded = [ns for f in facts for ns in f.unrecorded_steps_ns]
    is_measured = min(len(recorded), len(unrecorded)) >= MIN_STEPS
    return Receipt(
        recorded_step_ns=round(median(recorded)) if is_measured else None,
        bare_step_ns=round(median(unrecorded)) if is_measured else None,
        num_bare_steps=len(unrecorded) if is_measured else 0,
        hook_events=sum(int(end.get("hook_events", 0)) for end in ends),
        allocator_events=sum(f.allocator_events for f in facts),
        flush_ns=max((int(end.get("flush_ns", 0)) for end in ends), default=0),
        raw_bytes=sum(p.stat().st_size for p in raw),
        convert_ns=convert_ns,
    )


def finished_manifest(
    started: Manifest, facts: list[RankFacts], records: list[RankRecord], receipt: Receipt, world_size: int
) -> Manifest:
    """The manifest as it was when the job began, with what its ranks recorded."""
    end: dict[str, Any] = next((f.end for f in facts if f.end), {}) or next((f.known for f in facts if f.known), {})
    units = next((f.units for f in facts if f.units), [])
    model = next((f.model for f in facts if f.model), {})
    process: dict[str, Any] = next((f.process for f in facts if f.process), {})
    strategy, detail = find_strategy(units, world_size)
    if started.extra.get("as") == "zero1":
        detail += "; optimizer states divided (ZeRO-1)"
    versions = {
        "python": process.get("python"),
        "fsdp-profile": process.get("fsdp-profile"),
        "torch": end.get("torch"),
        "cuda": end.get("cuda"),
        "nccl": end.get("nccl"),
    }
    was_lost = any((f.end or {"lost": {"": ""}}).get("lost") for f in facts)
    optimizers = next((f.optimizers for f in facts if f.optimizers), [])
    notes = next((f.rewrapped for f in facts if f.rewrapped), [])
    found = {"optimizers": optimizers, "rewrapped": notes}
    extra = {**started.extra, **{name: value for name, value in found.items() if value}}
    return replace(
        started,
        strategy=strategy,
        strategy_detail=detail,
        world_size=world_size,
        device_type=str(end.get("device_type") or ""),
        device_name=str(end.get("device_name") or ""),
        device_total_bytes=end.get("device_total_bytes"),
        backend=str(end.get("backend") or ""),
        versions={name: str(value) for name, value in versions.items() if value},
        model=Model(**model) if model else Model(),
        ranks=sorted(records, key=lambda r: r.rank),
        sources=_sources(facts, end),
        not_recorded=_not_recorded(facts, end),
        warnings=_warnings(facts, world_size, {r.rank: r.exit_code for r in records if r.exit_code is not None}),
        receipt=receipt,
        complete=bool(facts) and all(r.ending is Ending.COMPLETED for r in records) and not was_lost,
        extra=extra,
    )


def _sources(facts: list[RankFacts], end: dict[str, Any]) -> dict[str, str]:
    lost = {feature: why for f in facts for feature, why in ((f.end or {}).get("lost") or {}).items()}

    def state(has_it: bool, feature: str, why: str) -> str:
        return "recorded" if has_it else f"not recorded: {lost.get(feature, why)}"

    nvml = next((why for f in facts if (why := (f.end or {}).get("why_no_nvml"))), None)
    return {
        "allocator events": state(any(f.allocator_events for f in facts), "allocator events", "none were seen"),
        "units": state(any(f.units for f in facts), "units", "no FSDP or DDP module was seen"),
        "collectives": state(any(f.has_collectives for f in facts), "collectives", "none were seen"),
        "Kineto traces": state(
            any(f.has_kineto for f in facts), "Kineto trace", "switched off or no step in the window"
        ),
        "NVML": f"not recorded: {nvml}" if nvml else ("recorded" if end else "not recorded: the ranks did not end"),
    }


def _not_recorded(facts: list[RankFacts], end: dict[str, Any]) -> dict[str, str]:
    why: dict[str, str] = {}
    nvml = next((w for f in facts if (w := (f.end or {}).get("why_no_nvml"))), None)
    if nvml:
        why["device_used_peak_bytes"] = nvml
    if end.get("device_type") == "cpu":
        why["reserved_peak_bytes"] = "the CPU allocator has no reserved pool"
    return why


def _warnings(facts: list[RankFacts], world_size: int, exit_codes: dict[int, int]) -> list[str]:
    found = [f"rank {f.rank}: {line}" for f in facts for line in f.warnings]
    for f in facts:
        lost = ((f.end or {}).get("lost") or {}).items()
        found += [f"rank {f.rank}: {feature} not recorded: {why}" for feature, why in lost]
        if f.process and f.end is None:
            has_exited = exit_codes.get(f.rank, -1) >= 0
            why = "its log has no end (os._exit, os.exec or a full disk)" if has_exited else "its process was killed"
            found.append(f"rank {f.rank}: {why}; what it wrote up to step {f.num_steps} is kept")
    if not facts:
        # Without exit codes it is not known whether the ranks have ended.
        why = (
            "the script never imported torch, or did not start"
            if exit_codes
            else "they may not have started to write yet"
        )
        found.append(f"none of the {world_size} ranks recorded anything: {why}")
    elif not any(f.units for f in facts):
        found.append("nothing distributed was seen: no FSDP or DDP module ran a forward in any rank")
    elif not any(f.num_steps for f in facts):
        found.append("no optimizer step was seen")
    return found
