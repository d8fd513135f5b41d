"""Ranks: what each one used, how long its steps took, how it ended."""

import streamlit as st

from fsdp_dashboard import data, parts, state, tables, text
from fsdp_dashboard.charts.ranks import peaks_figure, step_times_figure
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


if __name__ == "__main__":
    page()
