"""Ranks: what each one used, how long its steps took, how it ended, and who made the others wait."""

import streamlit as st

from fsdp_dashboard import data, data_collectives, parts, state, tables, tables_collectives, text
from fsdp_dashboard.charts.ranks import peaks_figure, step_times_figure, waits_figure
from fsdp_dashboard.data import RunFacts, RunRef


def page() -> None:
    """Every chosen run, all on one scale of bytes and one of time."""
    st.subheader("Ranks")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        parts.nothing_chosen(catalogue)
        return
    runs = parts.readable(chosen.runs)
    max_bytes, max_ns = data.longest(runs)
    max_wait_ns = data_collectives.longest_wait_ns([ref for ref, _ in runs])
    for ref, run in runs:
        if len(runs) > 1:
            st.markdown(f"#### {run.manifest.strategy} · {text.code(ref.label)}")
        with parts.told(ref.label):
            left, right = st.columns(2)
            with left:
                peaks(ref, run, max_bytes)
            with right:
                step_times(ref, run, max_ns)
            parts.table(tables.ranks_table(run.ranks), key=f"ranks {ref.label}")
            across(ref, max_wait_ns)


def peaks(ref: RunRef, run: RunFacts, max_bytes: int) -> None:
    """What each rank's peak is made of."""
    parts.section("Peak of each rank")
    found = [r.peak for r in run.ranks if r.peak]
    if found:
        drawn = peaks_figure(found, max_bytes=max_bytes)
        parts.figure(drawn, key=f"peaks {ref.label}", alt="The peak of each rank by category")
    else:
        parts.not_recorded("Peak", ref.label, data.not_recorded(ref).get("peak", "no allocator events"))


def step_times(ref: RunRef, run: RunFacts, max_ns: int) -> None:
    """How long each rank's steps took."""
    parts.section("Step time")
    durations = {r.rank: data.step_durations_ns(ref, rank=r.rank) for r in run.ranks}
    if any(durations.values()):
        drawn = step_times_figure(durations, max_ns=max_ns)
        parts.figure(drawn, key=f"times {ref.label}", alt="Length of each step per rank")
        st.caption(text.STEP_TIME)
    else:
        parts.not_recorded("Step times", ref.label, "no step was completed")


def across(ref: RunRef, max_ns: int) -> None:
    """Who came last to the collectives, who never came, and what was wait and what transfer."""
    parts.section("Waiting for each other")
    found = data_collectives.across(ref)
    if found.is_single_rank:
        parts.not_recorded("Waits", ref.label, "one rank only: there is no other to compare with")
        return
    for lost in found.never_joined:
        st.error(text.never_joined(lost), icon=":material/error:")
    if not found.num_matched:
        why = "; ".join(found.unmatched) or data.not_recorded(ref).get("collectives", "no collectives were recorded")
        parts.not_recorded("Waits", ref.label, why)
        if found.num_unmatched:
            st.caption(f"{text.matched(found)} {text.clocks(found.clock)}")
        return
    if found.stragglers:
        st.markdown(text.straggler(found.stragglers[0], found.num_matched))
    waits = data_collectives.rank_waits(ref)
    left, right = st.columns([3, 2])
    with left:
        drawn = waits_figure(waits, max_ns=max_ns)
        parts.figure(drawn, key=f"waits {ref.label}", alt="Wait and transfer of each rank in matched collectives")
    with right:
        parts.table(tables_collectives.waits_table(waits), key=f"waits table {ref.label}")
    if found.stragglers:
        parts.table(tables_collectives.stragglers_table(found.stragglers), key=f"stragglers {ref.label}")
    else:
        st.markdown("No rank came late: all came to each collective at once.")
    st.caption(f"{text.matched(found)} {text.clocks(found.clock)}")


if __name__ == "__main__":
    page()
