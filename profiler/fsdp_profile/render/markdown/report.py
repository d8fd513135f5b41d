"""The report of a run as Markdown, for an issue, a pull request or a wiki."""

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.render.markdown.tags import markdown_table, markdown_text

_MAX_UNITS = 50


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
    of_ranks = [
        (str(r.rank), bytes_text(r.peak.allocated_bytes if r.peak else None), bytes_text(r.reserved_peak_bytes),
         str(r.num_steps), ns_text(r.median_step_ns), str(r.record.ending) if r.record else "")
        for r in ranks
    ]  # fmt: skip
    text += [
        "## Ranks",
        "",
        markdown_table(("rank", "peak", "reserved", "steps", "median step", "ended"), of_ranks),
        "",
    ]
    text += [f"- {markdown_text(line)}" for line in manifest.warnings]
    return "\n".join(text)


def _findings(run: Run) -> list[str]:
    lines = []
    for found in findings(run):
        do = f" *{markdown_text(found.action)}*" if found.action else ""
        lines.append(f"- **{found.severity.lower()}** {markdown_text(found.claim)}{do}")
    return ["## Findings", "", *(lines or ["none"]), ""]


def _units(run: Run, rank: int) -> list[str]:
    units = unit_summaries(run, rank=rank)
    rows = [
        (unit_text(u.name), bytes_text(u.sharded_bytes), bytes_text(u.unsharded_bytes), str(u.num_gathers),
         ns_text(u.gathered_ns), ns_text(u.exposed_ns))
        for u in units[:_MAX_UNITS]
    ]  # fmt: skip
    header = ("unit", "kept", "gathered", "gathers", "time gathered", "exposed")
    more = [f"and {len(units) - _MAX_UNITS} more", ""] if len(units) > _MAX_UNITS else []
    return [f"## Units of rank {rank}", "", markdown_table(header, rows), "", *more] if rows else []


def _collectives(run: Run, rank: int) -> list[str]:
    found = collective_summary(run, rank=rank)
    if found is None:
        return []
    rows = [
        (kind, str(total.count), bytes_text(total.size_bytes), ns_text(total.total_ns), ns_text(total.exposed_ns))
        for kind, total in found.by_kind.items()
    ]
    return [
        f"## Collectives of rank {rank}",
        "",
        markdown_table(("kind", "calls", "bytes", "time", "exposed"), rows),
        "",
    ]
