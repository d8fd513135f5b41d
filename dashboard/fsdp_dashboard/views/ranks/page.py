"""Ranks: what each one used, how long its steps took, how it ended, and who made the others wait."""

import streamlit as st

from fsdp_dashboard import data, state, tables, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.collectives import tables as tables_collectives
from fsdp_dashboard.views.ranks import parts
from fsdp_dashboard.views.ranks import queries as data_ranks
from fsdp_dashboard.views.ranks.charts import step_times_figure, waits_figure


def page() -> None:
    """Every chosen run, all on one scale of bytes and one of time; many ranks as a heat map."""
    st.subheader("Ranks")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    runs = widgets.readable(chosen.runs)
    few = [(ref, run) for ref, run in runs if len(run.ranks) <= data_ranks.MANY]
    measure = data_ranks.Measure.PEAK
    if len(few) < len(runs):
        measure = data_ranks.Measure(state.pick_measure(data_ranks.MEASURES))
    max_bytes, max_ns = data.longest(few)
    max_wait_ns = data_ranks.longest_wait_ns([ref for ref, _ in few])
    for ref, run in runs:
        if len(runs) > 1:
            st.markdown(f"#### {run.manifest.strategy} · {text.code(ref.label)}")
        with widgets.told(ref.label):
            if len(run.ranks) > data_ranks.MANY:
                widgets.section(f"{len(run.ranks):,} ranks")
                parts.rank_map(ref, run, measure)
            else:
                left, right = st.columns(2)
                with left:
                    parts.rank_peaks(ref, run, label=None, max_bytes=max_bytes)
                with right:
                    step_times(ref, run, max_ns)
            widgets.table(tables.ranks_table(run.ranks), key=f"ranks {ref.label}")
            waits(ref, max_wait_ns, is_drawn=len(run.ranks) <= data_ranks.MANY)


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


def waits(ref: RunRef, max_ns: int, *, is_drawn: bool) -> None:
    """Who came last to the collectives, who never came, and what was wait and what transfer."""
    widgets.section("Waiting for each other")
    found = data_ranks.cross_rank(ref)
    if found.is_single_rank:
        widgets.not_recorded("Waits", ref.label, "one rank only: there is no other to compare with")
        return
    for lost in found.never_joined:
        st.error(text.never_joined(lost), icon=":material/error:")
    if not found.num_matched:
        why = "; ".join(found.unmatched) or data.not_recorded(ref).get("collectives", "no collectives were recorded")
        widgets.not_recorded("Waits", ref.label, why)
        if found.num_unmatched:
            st.caption(f"{text.matched(found)} {text.clocks(found.clock)}")
        return
    if found.stragglers:
        st.markdown(text.straggler(found.stragglers[0], found.num_matched))
    waits = data_ranks.waits(ref)
    if is_drawn:
        left, right = st.columns([3, 2])
        with left:
            drawn = waits_figure(waits, max_ns=max_ns)
            widgets.figure(drawn, key=f"waits {ref.label}", alt="Wait and transfer of each rank in matched collectives")
        with right:
            widgets.table(tables_collectives.waits_table(waits), key=f"waits table {ref.label}")
    if found.stragglers:
        widgets.table(tables_collectives.stragglers_table(found.stragglers), key=f"stragglers {ref.label}")
    else:
        st.markdown("No rank came late: all came to each collective at once.")
    st.caption(f"{text.matched(found)} {text.clocks(found.clock)}")
    if not is_drawn:
        with st.expander("Wait and transfer of every rank"):
            widgets.table(tables_collectives.waits_table(waits), key=f"waits table {ref.label}")


if __name__ == "__main__":
    page()
