"""The report of a run as Markdown, for an issue, a pull request or a wiki."""

from collections.abc import Sequence

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.ranks.overview import RankSummary, rank_summaries, worst_peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text
from fsdp_profile.present import memory
from fsdp_profile.present.findings import NONE
from fsdp_profile.present.overview import strategy_text
from fsdp_profile.render.markdown.tags import markdown_table, markdown_text
from fsdp_profile.render.markdown.values import sentence_markdown, table_markdown

_MAX_UNITS = 50


def markdown_report(run: Run) -> str:
    """Verdict, peak by category, findings, units, collectives, ranks.

    Raises:
        InputError: a table is damaged.
    """
    ranks = rank_summaries(run)
    peak = worst_peak(ranks)
    text = [f"# {markdown_text(run.name)}", "", markdown_text(strategy_text(run.manifest)), ""]
    text += [sentence_markdown(memory.verdict(peak)), ""]
    if peak is not None:
        text += table_markdown(memory.categories_table(peak.by_category))
    text += _findings(run)
    if peak is not None:
        text += _units(run, peak.rank)
    if run.ranks:
        text += _collectives(run, run.ranks[0] if peak is None else peak.rank)
    text += _ranks(ranks)
    text += [f"- {markdown_text(line)}" for line in run.manifest.warnings]
    return "\n".join(text)


def _ranks(ranks: Sequence[RankSummary]) -> list[str]:
    rows = [
        (str(r.rank), bytes_text(r.peak.allocated_bytes if r.peak else None), bytes_text(r.reserved_peak_bytes),
         str(r.num_steps), ns_text(r.median_step_ns), str(r.record.ending) if r.record else "")
        for r in ranks
    ]  # fmt: skip
    header = ("rank", "peak", "reserved", "steps", "median step", "ended")
    return ["## Ranks", "", markdown_table(header, rows), ""]


def _findings(run: Run) -> list[str]:
    lines = []
    for found in findings(run):
        action = f" *{markdown_text(found.action)}*" if found.action else ""
        lines.append(f"- **{found.severity.label}** {markdown_text(found.claim)}{action}")
    return ["## Findings", "", *(lines or [sentence_markdown(NONE)]), ""]


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
