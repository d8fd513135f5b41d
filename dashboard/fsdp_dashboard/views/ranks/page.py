"""Ranks: what each one used, how long its steps took, how it ended, and who made the others wait."""

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import arrow_table, markdown
from fsdp_dashboard.views.ranks import parts, queries
from fsdp_dashboard.views.ranks.charts import step_times_figure, waits_figure
from fsdp_profile.present.clocks import clocks
from fsdp_profile.present.ranks import ranks_table
from fsdp_profile.present.stragglers import late_rank, matched, never_joined, stragglers_table, waits_table


def page() -> None:
    """Every chosen run, all on one scale of bytes and one of time; many ranks as a heat map."""
    st.subheader("Ranks")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    runs = widgets.readable(chosen.runs)
    few = [(ref, run) for ref, run in runs if len(run.ranks) <= queries.MANY]
    measure = queries.Measure.PEAK
    if len(few) < len(runs):
        measure = queries.Measure(state.pick_measure(queries.MEASURES))
    max_bytes, max_ns = data.longest(few)
    max_wait_ns = queries.longest_wait_ns([ref for ref, _ in few])
    for ref, run in runs:
        if len(runs) > 1:
            st.markdown(f"#### {run.manifest.strategy.label} · {text.code(ref.label)}")
        with widgets.told(ref.label):
            if len(run.ranks) > queries.MANY:
                widgets.section(f"{len(run.ranks):,} ranks")
                parts.rank_map(ref, run, measure)
            else:
                left, right = st.columns(2)
                with left:
                    parts.rank_peaks(ref, run, label=None, max_bytes=max_bytes)
                with right:
                    step_times(ref, run, max_ns)
            widgets.table(arrow_table(ranks_table(run.ranks)), key=f"ranks {ref.label}")
            waiting(ref, max_wait_ns, is_drawn=len(run.ranks) <= queries.MANY)


def step_times(ref: RunRef, run: RunFacts, max_ns: int) -> None:
    """How long each rank's steps took."""
    widgets.section("Step time")
    durations = {r.rank: data.step_durations_ns(ref, rank=r.rank) for r in run.ranks}
    if any(durations.values()):
        drawn = step_times_figure(durations, max_ns=max_ns)
        widgets.figure(drawn, key=f"times {ref.label}", alt="Length of each step per rank")
        st.caption(text.STEP_TIME)
    else:
        widgets.not_recorded("Step times", ref.label, "no step was completed")


def waiting(ref: RunRef, max_ns: int, *, is_drawn: bool) -> None:
    """Which rank came last to the collectives, which never joined, and what was wait and what transfer."""
    widgets.section("Waiting for each other")
    found = queries.cross_rank(ref)
    if found.is_single_rank:
        widgets.not_recorded("Waits", ref.label, "one rank only: there is no other to compare with")
        return
    for lost in never_joined(found.never_joined):
        st.error(markdown(lost), icon=":material/error:")
    how = f"{markdown(matched(found))} {markdown(clocks(found.clock))}"
    if not found.num_matched:
        why = "; ".join(found.unmatched) or data.not_recorded(ref).get("collectives", "no collectives were recorded")
        widgets.not_recorded("Waits", ref.label, why)
        if found.num_unmatched:
            st.caption(how)
        return
    st.markdown(markdown(late_rank(found.stragglers, found.num_matched)))
    waits = arrow_table(waits_table(found.waits))
    if is_drawn:
        left, right = st.columns([3, 2])
        with left:
            drawn = waits_figure(list(found.waits), max_ns=max_ns)
            widgets.figure(drawn, key=f"waits {ref.label}", alt="Wait and transfer of each rank in matched collectives")
        with right:
            widgets.table(waits, key=f"waits table {ref.label}")
    if found.stragglers:
        late = stragglers_table(found.stragglers, num_matched=found.num_matched)
        widgets.table(arrow_table(late), key=f"stragglers {ref.label}")
    st.caption(how)
    if not is_drawn:
        with st.expander("Wait and transfer of every rank"):
            widgets.table(waits, key=f"waits table {ref.label}")


if __name__ == "__main__":
    page()
