"""The sections of the HTML report about one run; a section whose tables cannot be read says so."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.why_not_smaller import why_not_smaller
from fsdp_profile.analysis.memory.device_waterfall import waterfall
from fsdp_profile.analysis.memory.ledger import Peak, timeline
from fsdp_profile.analysis.memory.postmortem import post_mortems
from fsdp_profile.analysis.ranks.overview import RankSummary, rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.summary import why_null
from fsdp_profile.analysis.time.breakdown import step_breakdowns
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.present import breakdown, collectives, memory, postmortem, ranks, units
from fsdp_profile.present import findings as present_findings
from fsdp_profile.present.clocks import clocks
from fsdp_profile.present.device_waterfall import waterfall_table
from fsdp_profile.present.endings import endings
from fsdp_profile.present.overview import (
    RECEIPT_TITLE,
    absent_fields,
    not_recorded_facts,
    receipt_facts,
    run_facts,
    sources_not_recorded,
    strategy_text,
)
from fsdp_profile.present.stragglers import late_rank, matched, never_joined, stragglers_table
from fsdp_profile.present.values import Fact
from fsdp_profile.render.html.ledger import PackedLedger, pack
from fsdp_profile.render.html.tags import bar, bullets, esc, heading, legend, paragraph
from fsdp_profile.render.html.values import fact_list, sentence_html, sentence_paragraph, table_html

MAX_PHASES: Final = 4_000
_BUTTONS: Final = (
    ("whole", "Whole run"), ("step", "Step of the peak"), ("peak", "Peak"), ("in", "+"), ("out", "-"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """What the page needs of one run."""

    run: Run
    ranks: list[RankSummary]
    peak: Peak | None
    """Of the rank with the highest one."""
    ledger: PackedLedger | None
    chart: dict[str, Any] | None
    """What the script needs to draw the ledger."""


def run_page(run: Run, *, number: int) -> RunPage:
    """Ask what all sections need.

    Raises:
        InputError: a table is damaged.
    """
    summaries = rank_summaries(run)
    peaks = [r.peak for r in summaries if r.peak]
    peak = max(peaks, key=lambda p: (p.allocated_bytes, -p.rank), default=None)
    if peak is None:
        return RunPage(run=run, ranks=summaries, peak=None, ledger=None, chart=None)
    steps = numbers(run.table("memory_samples", rank=peak.rank), "step")
    ledger = pack(timeline(run, rank=peak.rank), step=np.flatnonzero(steps == peak.step))
    return RunPage(run=run, ranks=summaries, peak=peak, ledger=ledger, chart=_chart(run, peak, ledger, number))


def _chart(run: Run, peak: Peak, ledger: PackedLedger, number: int) -> dict[str, Any]:
    steps, phases = run.table("steps", rank=peak.rank), run.table("phases", rank=peak.rank)
    zero = ledger.zero_ns
    bounds = _spans(steps, numbers(steps, "step").tolist(), zero)
    mine = next(([start, end] for start, end, step in bounds if step == peak.step), None)
    return {
        "figure": f"figure-{number}",
        "data": f"ledger-{number}",
        "rows": ledger.num_rows,
        "categories": [category.value for category in ledger.categories],
        "labels": [category.label for category in ledger.categories],
        "end_ns": max((end for _, end, _ in bounds), default=0),
        "peak_ns": peak.t_ns - zero,
        "peak_step": mine or [0, max(peak.t_ns - zero, 1)],
        "steps": bounds[:MAX_PHASES],
        "phases": _spans(phases, [str(word) for word in strings(phases, "phase")], zero)[:MAX_PHASES],
    }


def _spans(found: Any, what: list[Any], zero: int) -> list[list[Any]]:
    starts, ends = numbers(found, "start_ns") - zero, numbers(found, "end_ns") - zero
    return [list(row) for row in zip(starts.tolist(), ends.tolist(), what, strict=True)]


def sections(page: RunPage, *, number: int, top_bytes: int) -> str:
    """All sections of a run; one whose files contradict each other says so, and the others are there."""
    parts: list[Callable[[RunPage], str]] = [
        _post_mortem, _facts, lambda p: _memory(p, number, top_bytes), _findings, _units, _collectives, _ranks, _rest,
    ]  # fmt: skip
    return "".join(_told(part, page) for part in parts)


def _told(part: Callable[[RunPage], str], page: RunPage) -> str:
    try:
        return part(page)
    except FsdpProfileError as e:
        return paragraph(e, css="bad")


def overview_html(run: Run) -> str:
    """The peak of a run in a few lines: the part of a page that a notebook shows."""
    page = run_page(run, number=0)
    title = heading(4, f"{run.name}: {strategy_text(run.manifest)}")
    if page.peak is None:
        return title + sentence_paragraph(memory.verdict(None))
    peak = page.peak
    return (
        title
        + sentence_paragraph(memory.verdict(peak))
        + bar(peak.by_category, top_bytes=peak.allocated_bytes, label="The peak by category")
        + table_html(memory.categories_table(peak.by_category), level=4)
    )


def _facts(page: RunPage) -> str:
    ended = Fact(label="ended", value=endings(page.run.manifest).sentence)
    return sentence_paragraph(memory.verdict(page.peak), css="verdict") + fact_list(
        [*run_facts(page.run.manifest, page.ranks), ended]
    )


def _memory(page: RunPage, number: int, top_bytes: int) -> str:
    if page.peak is None or page.ledger is None:
        return ""
    peak = page.peak
    device = waterfall(page.run, rank=peak.rank)
    return (
        heading(3, "Memory at the peak")
        + bar(peak.by_category, top_bytes=top_bytes, label="The peak by category")
        + legend(peak.by_category)
        + table_html(replace(memory.categories_table(peak.by_category), title=""))
        + (table_html(waterfall_table(device)) if device is not None else "")
        + heading(3, f"Memory over time, rank {peak.rank}")
        + _figure(number, page.ledger)
        + f'<script type="text/plain" id="ledger-{number}">{page.ledger.text}</script>'
    )


def _figure(number: int, ledger: PackedLedger) -> str:
    """The chart's place; the script draws it."""
    buttons = "".join(f'<button type="button" data-zoom="{what}">{text}</button>' for what, text in _BUTTONS)
    return (
        f'<figure id="figure-{number}"><div class="controls">{buttons}</div>'
        '<canvas tabindex="0" role="img" aria-label="Live bytes by category over time; + and - zoom, arrows move">'
        '</canvas><div class="readout" aria-live="polite"><noscript>The chart needs JavaScript; the tables do not.'
        '</noscript></div><figcaption><span class="help">Drag to zoom, double-click for the whole run, Ctrl and the '
        "wheel for more; keys + - 0 and arrows. </span>"
        f"Downsampled to {ledger.num_rows:,} of {ledger.num_events:,} allocator events; each bin keeps its events with "
        "the least and the greatest total.</figcaption></figure>"
    )


def _findings(page: RunPage) -> str:
    found = findings(page.run)
    parts = [
        f'<div class="finding {one.severity.value}"><b>{esc(one.severity.label)} · {esc(one.rule)}</b>'
        + fact_list(present_findings.facts(one))
        + "</div>"
        for one in found
    ] or [sentence_paragraph(present_findings.NONE, css="soft")]
    note = paragraph(present_findings.note(has_peak=page.peak is not None), css="soft")
    why = fact_list(present_findings.why_facts(why_not_smaller(page.run)))
    return heading(3, "Findings") + note + "".join(parts) + _titled(present_findings.WHY_TITLE, why)


def _units(page: RunPage) -> str:
    if not page.run.ranks:
        return ""
    rank = _rank_shown(page)
    found = unit_summaries(page.run, rank=rank)
    return table_html(units.units_table(found, rank=rank)) + (
        paragraph(units.units_note(found), css="soft") if found else ""
    )


def _collectives(page: RunPage) -> str:
    if not page.run.ranks:
        return ""
    rank = _rank_shown(page)
    found, steps = collective_summary(page.run, rank=rank), step_breakdowns(page.run, rank=rank)
    matches = cross_rank(page.run)
    between = [matched(matches), clocks(matches.clock)] if not matches.is_single_rank else []
    return "".join(
        [
            table_html(collectives.kinds_table(found, rank=rank)),
            sentence_paragraph(collectives.exposed_time(found, rank=rank)) if found is not None else "",
            table_html(breakdown.steps_table(steps, rank=rank)),
            paragraph(breakdown.meaning(steps.values()), css="soft") if steps else "",
            table_html(stragglers_table(matches.stragglers, num_matched=matches.num_matched)),
            sentence_paragraph(late_rank(matches.stragglers, matches.num_matched)) if matches.stragglers else "",
            *(sentence_paragraph(one, css="bad") for one in never_joined(matches.never_joined)),
            *(sentence_paragraph(one, css="soft") for one in between),
        ]
    )


def _ranks(page: RunPage) -> str:
    return table_html(ranks.peaks_table(page.ranks)) + table_html(ranks.processes_table(page.ranks))


def _rank_shown(page: RunPage) -> int:
    return page.peak.rank if page.peak is not None else page.run.ranks[0]


def _post_mortem(page: RunPage) -> str:
    found = post_mortems(page.run)
    if not found or page.run.manifest.complete:
        return ""
    first = found[0]
    remedies = "".join(f"<li>{sentence_html(postmortem.remedy(one))}</li>" for one in first.remedies)
    return (
        sentence_paragraph(postmortem.out_of_memory(first), css="verdict bad")
        + (table_html(waterfall_table(first.device, when="when the allocation failed")) if first.device else "")
        + table_html(postmortem.others_table(first.others))
        + _titled("Remedies", f"<ul>{remedies}</ul>" if remedies else "", postmortem.REMEDIES_NOTE)
    )


def _rest(page: RunPage) -> str:
    manifest = page.run.manifest
    missing = sources_not_recorded(manifest) | absent_fields(page.ranks, why_null(page.run))
    return (
        _titled("Warnings", bullets(manifest.warnings, css="bad"))
        + _titled("Not recorded", fact_list(not_recorded_facts(missing)))
        + _titled(RECEIPT_TITLE, fact_list(receipt_facts(manifest)))
    )


def _titled(title: str, body: str, note: str = "") -> str:
    return heading(3, title) + body + (paragraph(note, css="soft") if note else "") if body else ""
