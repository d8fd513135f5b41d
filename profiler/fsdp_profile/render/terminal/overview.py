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
from fsdp_profile.present import overview as present
from fsdp_profile.present.memory import marks_table
from fsdp_profile.render.terminal.collectives import collectives_report
from fsdp_profile.render.terminal.findings import top_findings
from fsdp_profile.render.terminal.memory import composition
from fsdp_profile.render.terminal.palette import FAILURE, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, lines, note, sections
from fsdp_profile.render.terminal.postmortem import postmortem_report
from fsdp_profile.render.terminal.ranks import endings, lost_folders, rank_peaks
from fsdp_profile.render.terminal.units import largest_units
from fsdp_profile.render.terminal.values import fact_lines, sentence_text, table_grid


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
        marks = marks_table(shown, found.step_peaks, device_total_bytes=run.manifest.device_total_bytes)
        parts += [
            composition(shown.peak),
            top_findings(found.findings),
            table_grid(marks) if marks is not None else None,
        ]
    unread = len(run.ranks) - len(found.ranks)
    parts += [
        note(f"{unread} of {len(run.ranks)} ranks could not be read: their peaks may be higher.") if unread else None
    ]
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
    parts: list[RenderableType] = [heading(run.name, present.strategy_text(manifest))]
    if not manifest.complete:
        parts.append(endings(run))
    lost = lost_folders(run)
    if lost is not None:
        parts.append(lost)
    if problems:
        parts.append(lines(problems, style=FAILURE))
    return Group(*parts)


def _header(found: Overview) -> RenderableType:
    run = found.run
    rows = [(fact.label, sentence_text(fact.value)) for fact in present.run_facts(run.manifest, found.ranks)]
    problems = [lines(found.problems, style=FAILURE)] if found.problems else []
    return Group(heading(run.name), facts([*rows, ("ended", endings(run))]), *problems)


def _warnings(run: Run) -> RenderableType | None:
    found = run.manifest.warnings
    return Group(Text("Warnings", style="bold"), lines(found, style=WARNING)) if found else None


def _receipt(run: Run) -> RenderableType:
    return Group(heading(present.RECEIPT_TITLE), fact_lines(present.receipt_facts(run.manifest)))


def _not_recorded(run: Run) -> RenderableType | None:
    reasons = present.sources_not_recorded(run.manifest) | run.manifest.not_recorded
    return Group(heading("Not recorded"), fact_lines(present.not_recorded_facts(reasons))) if reasons else None
