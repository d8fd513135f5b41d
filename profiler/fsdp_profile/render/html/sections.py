"""The sections of the HTML report about one run: ask the analysis, fill tables. What cannot be read is said."""

from collections.abc import Callable
from dataclasses import dataclass
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
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, slowdown_text, unit_text
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.present import breakdown, collectives, ranks, units
from fsdp_profile.present.clocks import clocks
from fsdp_profile.present.endings import endings
from fsdp_profile.present.stragglers import late_rank, matched, never_joined, stragglers_table
from fsdp_profile.render.html.ledger import PackedLedger, pack
from fsdp_profile.render.html.tags import bar, bullets, esc, facts, heading, legend, paragraph, table
from fsdp_profile.render.html.values import sentence_paragraph, table_html
from fsdp_profile.render.terminal.overview import device_text, model_text

MAX_PHASES: Final = 4_000
_BUTTONS: Final = (
    ("whole", "Whole run"), ("step", "Step of the peak"), ("peak", "Peak"), ("in", "+"), ("out", "-"),
)  # fmt: skip
_WORDS: Final = {True: "a reason", False: "no", None: "not known"}


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
        "categories": list(ledger.categories),
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
    title = heading(4, f"{run.name}: {run.manifest.strategy_detail or run.manifest.strategy}")
    if page.peak is None:
        return title + paragraph(verdict(page))
    peak = page.peak
    return (
        title
        + paragraph(verdict(page))
        + bar(peak.by_category, top_bytes=peak.allocated_bytes, label="The peak by category")
        + table(("category", "bytes", "share"), _shares(peak))
    )


def _shares(peak: Peak) -> list[tuple[str, str, str]]:
    """Every category with bytes at a peak, UNKNOWN always."""
    sizes = {**peak.by_category, Category.UNKNOWN: peak.by_category.get(Category.UNKNOWN, 0)}
    return [(str(c), bytes_text(size), ratio_text(size / peak.allocated_bytes)) for c, size in sizes.items()]


def verdict(page: RunPage) -> str:
    """One sentence."""
    peak = page.peak
    if peak is None:
        return "No allocator events of a training step were recorded."
    unit = f", unit {unit_text(peak.unit_name)} at work" if peak.unit_name is not None else ""
    most = ", ".join(f"{bytes_text(size)} {category}" for category, size in list(peak.by_category.items())[:3])
    return (
        f"Peak {bytes_text(peak.allocated_bytes)} allocated on rank {peak.rank}, {peak.phase} of step "
        f"{peak.step}{unit}. Most of it: {most}. UNKNOWN: {ratio_text(peak.unknown_ratio)}."
    )


def _facts(page: RunPage) -> str:
    manifest = page.run.manifest
    script = " ".join([manifest.script, *manifest.script_args])
    return paragraph(verdict(page), css="verdict") + facts(
        [
            ("strategy", manifest.strategy_detail or str(manifest.strategy)),
            ("model", model_text(page.run)),
            ("device", device_text(page.run)),
            ("torch", manifest.versions.get("torch", "not recorded")),
            ("script", script or "not recorded"),
            ("recorded", manifest.created),
            ("ended", endings(page.run.manifest).sentence.text),
        ]
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
        + table(("category", "bytes", "share"), _shares(peak))
        + (table(("on the device", "bytes"), _device_rows(device)) if device is not None else "")
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
        f"{ledger.num_rows:,} of {ledger.num_events:,} events are in this page; every instant drawn is one that was: "
        "bins keep their least and greatest total.</figcaption></figure>"
    )


def _device_rows(device: Any) -> list[tuple[str, str]]:
    names = (
        ("allocated", "allocated_bytes"), ("pending free", "pending_free_bytes"), ("reserved", "reserved_bytes"),
        ("device used", "device_used_bytes"), ("outside PyTorch", "outside_bytes"),
    )  # fmt: skip
    return [(name, bytes_text(getattr(device, field))) for name, field in names if hasattr(device, field)]


def _findings(page: RunPage) -> str:
    parts = []
    for found in findings(page.run):
        saves = [
            f"saves {text}{' (estimate)' if found.is_estimate else ''}"
            for text in (
                bytes_text(found.saves_bytes) if found.saves_bytes else "",
                f"{ns_text(found.saves_ns)} a step" if found.saves_ns else "",
            )
            if text
        ]
        parts.append(
            f'<div class="finding {found.severity.value}"><b>{esc(found.severity.lower())} · {esc(found.rule)}</b>'
            + paragraph(found.claim)
            + (paragraph(found.action) if found.action else "")
            + "".join(paragraph(line, css="soft") for line in saves)
            + "</div>"
        )
    why = [(t.question, f"{_WORDS[t.is_reason]}: {t.answer}") for t in why_not_smaller(page.run)]
    told = "".join(parts) or paragraph("none: no rule applies to this run", css="soft")
    return heading(3, "Findings") + told + (heading(3, "Why is FSDP not smaller?") + facts(why) if why else "")


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
    free = f"; {bytes_text(first.free_bytes)} were free on the device" if first.free_bytes is not None else ""
    text = (
        f"Out of memory on rank {first.rank}: {bytes_text(first.asked_bytes)} asked for, "
        f"{bytes_text(first.then.allocated_bytes)} live{free}."
    )
    remedies = [(r.action, bytes_text(r.saves_bytes)) for r in first.remedies]
    return paragraph(text, css="verdict bad") + table(("what would help", "saves"), remedies)


def _rest(page: RunPage) -> str:
    manifest, cost = page.run.manifest, page.run.manifest.receipt
    missing = {
        what: why.removeprefix("not recorded: ")
        for what, why in manifest.sources.items()
        if why.startswith("not recorded")
    }
    missing |= {f: why for f, why in why_null(page.run).items() if any(getattr(r, f, 0) is None for r in page.ranks)}
    receipt = (
        f"{cost.allocator_events:,} allocator events and {cost.hook_events:,} hook events; {ns_text(cost.flush_ns)} "
        f"between steps to write {bytes_text(cost.raw_bytes)}; {ns_text(cost.convert_ns)} after the run to make tables."
    )
    if manifest.is_imported:
        receipt = f"Not recorded: the run was imported ({bytes_text(cost.raw_bytes)} in {ns_text(cost.convert_ns)})."
    elif cost.bare_step_ns is not None:
        receipt += (
            f" A recorded step took {slowdown_text(cost.recorded_step_ns, cost.bare_step_ns, cost.num_bare_steps)}."
        )
    return (
        _titled("Warnings", bullets(manifest.warnings, css="bad"))
        + _titled("Not recorded", facts(sorted(missing.items())))
        + _titled("What recording cost", paragraph(receipt))
    )


def _titled(title: str, body: str, note: str = "") -> str:
    return heading(3, title) + body + (paragraph(note, css="soft") if note else "") if body else ""
