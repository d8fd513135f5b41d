"""The page a newcomer reads first: what ran, how it ended, where the memory went, what recording cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.memory.postmortem import PostMortem
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.humanize import bytes_text, ns_text, slowdown_text
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.collectives import collectives_report
from fsdp_profile.render.terminal.findings import top_findings
from fsdp_profile.render.terminal.memory import composition, told_apart
from fsdp_profile.render.terminal.palette import FAILURE, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, lines, note, sections
from fsdp_profile.render.terminal.postmortem import postmortem_report
from fsdp_profile.render.terminal.ranks import endings, lost_folders, rank_peaks
from fsdp_profile.render.terminal.units import largest_units

_NOT_RECORDED = "not recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """What the analysis said about a run; what could not be read is empty and named in `problems`."""

    run: Run
    ranks: Sequence[RankSummary]
    rank: int | None
    """The one whose peak, units and collectives are shown; None when no rank could be read."""
    step_peaks: Sequence[Peak] = ()
    units: Sequence[UnitSummary] = ()
    collectives: CollectiveSummary | None = None
    per_step: StepTraffic | None = None
    problems: Sequence[str] = ()
    post_mortems: Sequence[PostMortem] = ()
    findings: Sequence[Finding] = ()


def overview_report(found: Overview) -> RenderableType:
    """The whole page."""
    run, rank = found.run, found.rank
    shown = next((r for r in found.ranks if r.rank == rank), None)
    is_its_end = not run.manifest.complete or run.manifest.is_imported
    failed = postmortem_report(found.post_mortems) if is_its_end else None
    caught = len(found.post_mortems) if failed is None else 0
    parts: list[RenderableType | None] = [failed, _header(found), lost_folders(run)]
    if shown is not None:
        total = run.manifest.device_total_bytes
        parts += [
            composition(shown.peak),
            top_findings(found.findings),
            told_apart(shown, found.step_peaks, device_total_bytes=total),
        ]
    unread = len(run.ranks) - len(found.ranks)
    parts += [note(f"{unread} of {len(run.ranks)} ranks could not be read: theirs may be higher.") if unread else None]
    parts += [rank_peaks(found.ranks)]
    if rank is not None:
        communication = collectives_report(found.collectives, rank=rank, per_step=found.per_step)
        parts += [largest_units(found.units, rank=rank), communication]
    if caught:
        parts.append(note(f"{caught} allocations failed and the script went on: see post_mortems in --json"))
    return sections([*parts, _warnings(run), _receipt(run), _not_recorded(run)])


def title(run: Run, *, problems: Sequence[str]) -> RenderableType:
    """The head of a section: which run, whether it is complete, and what of it could not be read."""
    manifest = run.manifest
    parts: list[RenderableType] = [heading(run.name, manifest.strategy_detail or str(manifest.strategy))]
    if not manifest.complete:
        parts.append(endings(run))
    lost = lost_folders(run)
    if lost is not None:
        parts.append(lost)
    if problems:
        parts.append(lines(problems, style=FAILURE))
    return Group(*parts)


def _header(found: Overview) -> RenderableType:
    manifest = found.run.manifest
    rows: list[tuple[str, str | Text]] = [
        ("strategy", manifest.strategy_detail or str(manifest.strategy)),
        ("model", model_text(found.run)),
        ("device", device_text(found.run)),
        ("torch", manifest.versions.get("torch", _NOT_RECORDED)),
        ("steps", _steps(found.ranks)),
        ("script", " ".join([manifest.script, *manifest.script_args]) or _NOT_RECORDED),
        ("recorded", manifest.created),
        ("ended", endings(found.run)),
    ]
    problems = [lines(found.problems, style=FAILURE)] if found.problems else []
    return Group(heading(found.run.name), facts(rows), *problems)


def model_text(run: Run) -> str:
    """The model, its size and dtypes, in one line."""
    model = run.manifest.model
    if not model.numel:
        return _NOT_RECORDED
    dtypes = sorted(model.dtypes.items(), key=lambda item: -item[1])
    kept_in = dtypes[0][0] if len(dtypes) == 1 else ", ".join(f"{numel:,} {dtype}" for dtype, numel in dtypes)
    size = f"{model.numel:,} parameters, {bytes_text(model.param_bytes)}"
    frozen = model.numel - model.trainable_numel
    parts = [f"{model.name}: {size}" if model.name else size, f" ({kept_in})" if kept_in else ""]
    if model.trainable_numel and frozen:
        parts.append(f", {frozen:,} of them frozen")
    return "".join(parts)


def device_text(run: Run) -> str:
    """How many of which devices, in one line."""
    manifest = run.manifest
    name = manifest.device_name or manifest.device_type or _NOT_RECORDED
    if manifest.device_type == "cpu":
        name = f"CPU ({manifest.device_name})" if manifest.device_name else "CPU"
    each = f", {bytes_text(manifest.device_total_bytes)} each" if manifest.device_total_bytes else ""
    over = f", {manifest.backend}" if manifest.backend else ""
    return f"{manifest.world_size} x {name}{each}{over}"


def _steps(ranks: Sequence[RankSummary]) -> str:
    if not ranks:
        return _NOT_RECORDED
    fewest, most = min(r.num_steps for r in ranks), max(r.num_steps for r in ranks)
    counted = f"{most:,} complete" if fewest == most else f"{fewest:,} to {most:,} complete, by rank"
    slowest = max((r.median_step_ns for r in ranks if r.median_step_ns is not None), default=None)
    if slowest is None:
        return counted
    return f"{counted}; {ns_text(slowest)} each (median after the first{', slowest rank' if len(ranks) > 1 else ''})"


def _warnings(run: Run) -> RenderableType | None:
    found = run.manifest.warnings
    return Group(Text("Warnings", style="bold"), lines(found, style=WARNING)) if found else None


def _receipt(run: Run) -> RenderableType:
    cost = run.manifest.receipt
    if not (cost.allocator_events or cost.hook_events or cost.raw_bytes):
        return Group(heading("What recording cost"), Text(_NOT_RECORDED, style="dim"))
    made = ("after it", f"{ns_text(cost.convert_ns)} to make tables")
    if run.manifest.is_imported:
        rows = [
            ("in the run", f"{_NOT_RECORDED}: it was recorded by other means"),
            ("imported", bytes_text(cost.raw_bytes)),
            made,
        ]
        return Group(heading("What recording cost"), facts(rows))
    rows = [
        ("events", f"{cost.allocator_events:,} of the allocator, {cost.hook_events:,} of hooks"),
        ("written", bytes_text(cost.raw_bytes)),
        ("in the run", f"{ns_text(cost.flush_ns)} between steps, to stop recording and write (slowest rank)"),
        ("a recorded step", _slowdown(run)),
        made,
    ]
    return Group(heading("What recording cost"), facts(rows))


def _slowdown(run: Run) -> str:
    cost = run.manifest.receipt
    if cost.bare_step_ns is None:
        return f"{_NOT_RECORDED}: too few steps after the window to compare with"
    return slowdown_text(cost.recorded_step_ns, cost.bare_step_ns, cost.num_bare_steps)


def _not_recorded(run: Run) -> RenderableType | None:
    prefix = f"{_NOT_RECORDED}: "
    reasons = {
        source: word.removeprefix(prefix)
        for source, word in run.manifest.sources.items()
        if word.startswith(_NOT_RECORDED)
    }
    reasons |= run.manifest.not_recorded
    if not reasons:
        return None
    return Group(heading("Not recorded"), facts((plain(field), why) for field, why in sorted(reasons.items())))
