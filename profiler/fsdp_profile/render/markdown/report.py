"""The report of a run as Markdown, for an issue, a pull request or a wiki."""

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.ranks.overview import rank_summaries, worst_peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.present import collectives, memory, units
from fsdp_profile.present import ranks as present
from fsdp_profile.present.findings import NONE
from fsdp_profile.present.overview import strategy_text
from fsdp_profile.render.markdown.tags import markdown_text
from fsdp_profile.render.markdown.values import sentence_markdown, table_markdown


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
    text += [*table_markdown(present.peaks_table(ranks)), *table_markdown(present.processes_table(ranks))]
    text += [f"- {markdown_text(line)}" for line in run.manifest.warnings]
    return "\n".join(text)


def _findings(run: Run) -> list[str]:
    lines = []
    for found in findings(run):
        action = f" *{markdown_text(found.action)}*" if found.action else ""
        lines.append(f"- **{found.severity.label}** {markdown_text(found.claim)}{action}")
    return ["## Findings", "", *(lines or [sentence_markdown(NONE)]), ""]


def _units(run: Run, rank: int) -> list[str]:
    found = unit_summaries(run, rank=rank)
    return [*table_markdown(units.units_table(found, rank=rank)), *([units.units_note(found), ""] if found else [])]


def _collectives(run: Run, rank: int) -> list[str]:
    found = collective_summary(run, rank=rank)
    if found is None:
        return []
    exposed = sentence_markdown(collectives.exposed_time(found, rank=rank))
    return [*table_markdown(collectives.kinds_table(found, rank=rank)), exposed, ""]
