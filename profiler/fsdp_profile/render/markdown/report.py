"""The report of a run as Markdown, for an issue, a pull request or a wiki."""

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.present import collectives, units
from fsdp_profile.present import ranks as present
from fsdp_profile.render.markdown.tags import markdown_table, markdown_text
from fsdp_profile.render.markdown.values import sentence_markdown, table_markdown


def markdown_report(run: Run) -> str:
    """Verdict, peak by category, findings, units, collectives, ranks.

    Raises:
        InputError: a table is damaged.
    """
    manifest, ranks = run.manifest, rank_summaries(run)
    worst = max(
        (r for r in ranks if r.peak), key=lambda r: (r.peak.allocated_bytes if r.peak else 0, -r.rank), default=None
    )
    text = [f"# {markdown_text(run.name)}", "", markdown_text(manifest.strategy_detail or str(manifest.strategy)), ""]
    if worst is None or worst.peak is None:
        text += ["No allocator events of a training step were recorded.", "", *_findings(run)]
        text += _collectives(run, run.ranks[0]) if run.ranks else []
    else:
        peak = worst.peak
        unit = f", unit {markdown_text(unit_text(peak.unit_name))} at work" if peak.unit_name is not None else ""
        text += [
            f"**Peak {bytes_text(peak.allocated_bytes)}** allocated on rank {peak.rank}, {peak.phase} of step "
            f"{peak.step}{unit}; UNKNOWN {ratio_text(peak.unknown_ratio)}.",
            "",
        ]
        rows = [(str(c), bytes_text(s), ratio_text(s / peak.allocated_bytes)) for c, s in peak.by_category.items()]
        text += [markdown_table(("category", "bytes", "share"), rows), ""]
        text += _findings(run)
        text += _units(run, peak.rank)
        text += _collectives(run, peak.rank)
    text += [*table_markdown(present.peaks_table(ranks)), *table_markdown(present.processes_table(ranks))]
    text += [f"- {markdown_text(line)}" for line in manifest.warnings]
    return "\n".join(text)


def _findings(run: Run) -> list[str]:
    lines = []
    for found in findings(run):
        do = f" *{markdown_text(found.action)}*" if found.action else ""
        lines.append(f"- **{found.severity.lower()}** {markdown_text(found.claim)}{do}")
    return ["## Findings", "", *(lines or ["none"]), ""]


def _units(run: Run, rank: int) -> list[str]:
    found = unit_summaries(run, rank=rank)
    return [*table_markdown(units.units_table(found, rank=rank)), *([units.units_note(found), ""] if found else [])]


def _collectives(run: Run, rank: int) -> list[str]:
    found = collective_summary(run, rank=rank)
    if found is None:
        return []
    exposed = sentence_markdown(collectives.exposed_time(found, rank=rank))
    return [*table_markdown(collectives.kinds_table(found, rank=rank)), exposed, ""]
