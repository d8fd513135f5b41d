"""Overview: where the memory went, in one sentence and one picture."""

import contextlib
from dataclasses import replace

import streamlit as st

from fsdp_dashboard import data, state, tables, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.state import Selection
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views import page_named
from fsdp_dashboard.views.memory.queries import Failures, failures
from fsdp_dashboard.views.memory.waterfall_chart import waterfall_figure
from fsdp_dashboard.views.overview import findings_text, queries
from fsdp_dashboard.views.overview.charts import PeakBar, composition_figure
from fsdp_dashboard.views.ranks import parts
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.present import compare, memory, postmortem, questions
from fsdp_profile.present import findings as present
from fsdp_profile.present.endings import endings
from fsdp_profile.present.overview import CPU_NOTE
from fsdp_profile.present.values import Sentence

OOM_ICON = ":material/memory_alt:"
MAX_FINDINGS = 6  # of a run; the others are behind an expander

Runs = list[tuple[RunRef, RunFacts]]


def page() -> None:
    """One run: its peak. Several: the same, and what changed."""
    st.subheader("Where did the memory go?")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    runs = widgets.readable(chosen.runs)
    for ref, run in runs:
        with widgets.told(ref.label):
            out_of_memory(ref, failures(ref, run), is_alone=len(runs) == 1)
    measured = [(ref, run) for ref, run in runs if run.worst is not None]
    for _, run in runs:
        if run.worst is None or len(measured) == 1:
            name = f"{text.code(run.label)}: " if run.worst is None else ""
            st.markdown(name + markdown(memory.verdict(run.worst.peak if run.worst else None)))
    if len(measured) == 1:
        alone(*measured[0])
    elif measured:
        compared(measured)
    answered(measured)
    by_category(measured)
    for ref, run in runs:
        with widgets.told(ref.label):
            findings(ref, has_peak=run.worst is not None, is_alone=len(runs) == 1)
    about(runs)
    widgets.onward(chosen, on_overview=True)


def out_of_memory(ref: RunRef, found: Failures, *, is_alone: bool) -> None:
    """The first allocation that the run did not survive: what filled the rank, where the others were, what helps."""
    if not found.fatal:
        return
    first = found.fatal[0]
    with st.container(border=True):
        st.error(
            f"{'' if is_alone else text.code(ref.label) + ': '}{markdown(postmortem.out_of_memory(first))}",
            icon=OOM_ICON,
        )
        if first.then.by_category:
            bar = PeakBar(title="live at that moment", strategy=f"rank {first.rank}", peak=first.then)
            alt = "What was live when the allocation failed, by category"
            widgets.figure(composition_figure([bar]), key=f"live {ref.label}", alt=alt)
        if first.device is not None:
            alt = "What was in use on the device, part by part, against its size"
            widgets.figure(waterfall_figure(first.device), key=f"failed device {ref.label}", alt=alt)
        if first.remedies:
            st.markdown(f"**Remedies**: {postmortem.REMEDIES_NOTE}")
            st.markdown("\n".join(f"- {markdown(postmortem.remedy(one))}" for one in first.remedies))
        if first.others:
            others = postmortem.others_table(first.others)
            st.markdown(f"**{others.title}**")
            widgets.show(others, key=f"others {ref.label}")
        if len(found.fatal) > 1:
            with st.expander(f"All {len(found.fatal):,} failed allocations"):
                widgets.show(postmortem.failures_table(found.fatal), key=f"failures {ref.label}")


def answered(runs: Runs) -> None:
    """The questions of a newcomer, of one of the runs, each with the page that shows more; then its ranks' peaks."""
    if not runs:
        return
    first = data.sharded_first([ref for ref, _ in runs])
    if len(runs) > 1:
        widgets.section("In short")
        state.pick_units_run(first)
    chosen = state.current(data.catalogue())
    ref = chosen.units_run if chosen.units_run in first else first[0]
    run = next(mine for other, mine in runs if other == ref)
    with widgets.told(ref.label):
        found = queries.answers(ref)
        saved = saved_by(ref, runs)
        with st.container(border=True):
            for one in questions.answers(found, run.manifest.strategy, saved=saved, num_ranks=len(run.ranks)):
                said, link = st.columns([5, 1], vertical_alignment="center")
                said.markdown(f"**{one.question}**  \n{markdown(one.answer)}")
                link.page_link(
                    page_named(one.page).script,
                    label=page_named(one.page).title,
                    icon=":material/arrow_forward:",
                    query_params=to_run(chosen, ref),
                )
        parts.rank_peaks(ref, run, label=None if len(runs) == 1 else ref.label)


def by_category(runs: Runs) -> None:
    """The numbers under the picture."""
    if not runs:
        return
    widgets.section("By category at the peak")
    if len(runs) == 1:
        worst = runs[0][1].worst
        if worst is not None and worst.peak is not None:
            widgets.show(memory.categories_table(worst.peak.by_category), key="by_category")
        return
    with widgets.told(", ".join(ref.label for ref, _ in runs)):
        found = data.comparison([ref for ref, _ in runs])
        names = tables.column_names([run for _, run in runs])
        widgets.show(compare.categories_table(found, names=names), key="by_category")


def to_run(chosen: Selection, ref: RunRef) -> dict[str, list[str]]:
    """A link to the same runs, of which pages that show one show this."""
    return replace(chosen, units_run=ref if len(chosen.runs) > 1 else None).query()


def saved_by(ref: RunRef, runs: Runs) -> Sentence | None:
    """The sentence on a run against the baseline; None where there is none, or it is the baseline."""
    if len(runs) < 2:
        return None
    found = data.comparison([other for other, _ in runs])
    others = [other for (other, _), mine in zip(runs, found.runs, strict=True) if mine.run != found.baseline]
    return compare.verdicts(found)[others.index(ref)] if ref in others else None


def alone(ref: RunRef, run: RunFacts) -> None:
    """The peak of one run."""
    worst = run.worst
    if worst is None or worst.peak is None:
        return
    why: dict[str, str] = {}
    with contextlib.suppress(FsdpProfileError):  # told below, where all of it is listed
        why = data.not_recorded(ref)

    def reason(field: str) -> str | None:
        return text.code(why[field]) if field in why else None

    tiles = st.columns(4)
    tiles[0].metric("Peak, allocated", bytes_text(worst.peak.allocated_bytes))
    tiles[1].metric("Peak, reserved", bytes_text(worst.reserved_peak_bytes), help=reason("reserved_peak_bytes"))
    tiles[2].metric("Median step", ns_text(worst.median_step_ns), help=reason("median_step_ns") or text.STEP_TIME)
    tiles[3].metric("Unknown", ratio_text(worst.peak.unknown_ratio), help="Share of the peak that is not attributed.")
    bar = PeakBar(title=ref.label, strategy=run.manifest.strategy.label, peak=worst.peak)
    drawn = composition_figure([bar], device_total_bytes=run.manifest.device_total_bytes)
    widgets.figure(drawn, key="composition", alt="The peak by category")


def compared(runs: Runs) -> None:
    """Several runs on one scale."""
    with widgets.told(", ".join(ref.label for ref, _ in runs)):
        found = data.comparison([ref for ref, _ in runs])
        st.markdown(text.as_list([markdown(one) for one in compare.verdicts(found)]))
        if found.differences:
            lines = text.as_list([text.code(line) for line in found.differences])
            st.warning(f"{compare.DIFFER}:\n\n{lines}", icon=":material/difference:")
        bars = [
            PeakBar(
                title=ref.label,
                strategy=run.manifest.strategy.label,
                peak=mine.peak,
                reduction_ratio=None if mine.run == found.baseline else mine.reduction_ratio,
            )
            for (ref, run), mine in zip(runs, found.runs, strict=True)
        ]
        totals = {run.manifest.device_total_bytes for _, run in runs}
        drawn = composition_figure(bars, device_total_bytes=totals.pop() if len(totals) == 1 else None)
        widgets.figure(drawn, key="composition", alt="The peak of each run by category, on one scale")


def findings(ref: RunRef, *, has_peak: bool, is_alone: bool) -> None:
    """What the run says about itself, and why one that shards is not smaller; without a peak what there is of time."""
    found, reasons = queries.findings(ref), queries.why_not_smaller(ref)
    if not has_peak and not found:
        return
    label = None if is_alone else ref.label
    widgets.section("Findings", label)
    st.caption(text.prose(present.note(has_peak=has_peak)) if found else markdown(present.NONE))
    lines = [(findings_text.headline(one), findings_text.details(one)) for one in found]
    each_opens(lines[:MAX_FINDINGS])
    if len(lines) > MAX_FINDINGS:
        with st.expander(f"{len(lines) - MAX_FINDINGS} more"):
            each_opens(lines[MAX_FINDINGS:])
    if reasons:
        widgets.section(present.WHY_TITLE, label)
        st.markdown("\n".join(f"- {findings_text.reason(test)}" for test in reasons))


def each_opens(lines: list[tuple[str, str]]) -> None:
    """One line each, with more behind it."""
    for line, more in lines:
        with st.expander(line):
            st.markdown(more)


def about(runs: Runs) -> None:
    """Facts, warnings and what is missing."""
    if not runs:
        return
    for ref, run in runs:
        name = f"{text.code(ref.label)}: " if len(runs) > 1 else ""
        for line in [*map(markdown, endings(run.manifest).problems), *map(text.code, run.manifest.warnings)]:
            st.warning(f"{name}{line}", icon=":material/warning:")
        with widgets.told(ref.label):
            num_survived = failures(ref, run).caught
            if num_survived:
                st.caption(f"{name}{markdown(postmortem.survived(num_survived))}")
    widgets.section("What ran")
    widgets.table(tables.facts_table([run for _, run in runs]), key="facts")
    if any(run.manifest.device_type == "cpu" for _, run in runs):
        st.caption(CPU_NOTE)
    with st.expander("Not recorded, and why"):
        for ref, _ in runs:
            with widgets.told(ref.label):
                lines = [f"- {text.code(k)}: {text.code(why)}" for k, why in data.not_recorded(ref).items()]
                st.markdown(f"{text.code(ref.label)}\n" + "\n".join(lines or ["- nothing is missing"]))


if __name__ == "__main__":
    page()
