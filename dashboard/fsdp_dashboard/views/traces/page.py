"""Traces: the Kineto traces of a run, our own overlap, and the tables of Holistic Trace Analysis (HTA)."""

from dataclasses import replace

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import arrow_table
from fsdp_dashboard.views import page_named
from fsdp_dashboard.views.collectives import queries as collectives
from fsdp_dashboard.views.share import queries as share
from fsdp_dashboard.views.traces import queries
from fsdp_profile.present.collectives import overlap_table
from fsdp_profile.present.hta import hta_table

NO_TRACE = "no trace was written when the run was recorded"


def page() -> None:
    """One run: its traces, our overlap, then HTA's tables."""
    st.subheader("Traces")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    if len(chosen.runs) > 1:
        state.pick_units_run(data.sharded_first(chosen.runs))
    chosen = state.current(catalogue)
    ref = chosen.units_run or data.sharded_first(chosen.runs)[0]
    for found, run in widgets.readable([ref]):
        with widgets.told(found.label):
            files(found, run)
        perfetto(chosen, found)
        with widgets.told(found.label):
            ours(found, run)
        with widgets.told(found.label):
            theirs(found, run)


def files(ref: RunRef, run: RunFacts) -> None:
    """The traces, by rank."""
    widgets.section("Kineto traces")
    traces = queries.traces(ref, run)
    if traces:
        widgets.table(arrow_table(queries.traces_table(traces)), key="traces")
    else:
        why = run.manifest.sources.get("Kineto traces", NO_TRACE).removeprefix("not recorded: ")
        widgets.not_recorded("Kineto traces", ref.label, why)


def perfetto(chosen: state.Selection, ref: RunRef) -> None:
    """The way to a file that Perfetto opens: phases, units, collectives and memory of every rank on one axis."""
    to = replace(chosen, units_run=ref if len(chosen.runs) > 1 else None).query()
    to[state.FORMAT] = [share.FORMATS[share.PERFETTO]]
    st.page_link(page_named("share").script, label="As a file for Perfetto", icon=":material/share:", query_params=to)


def ours(ref: RunRef, run: RunFacts) -> None:
    """The overlap of collectives and compute on each rank."""
    widgets.section("Ours: collectives and compute")
    found = {r.rank: collectives.summary(ref, rank=r.rank) for r in run.ranks}
    if any(found.values()):
        ours_table = overlap_table(found)
        widgets.table(arrow_table(ours_table), key="ours")
        st.caption(ours_table.note)
    else:
        widgets.not_recorded("Collectives", ref.label, data.not_recorded(ref).get("collectives", "none were seen"))


def theirs(ref: RunRef, run: RunFacts) -> None:
    """HTA's tables, when asked for."""
    widgets.section("Holistic Trace Analysis (HTA)")
    obstacle = queries.why_no_hta(run)
    if obstacle is not None:
        st.info(obstacle, icon=":material/info:")
        return
    asked = f"hta asked {ref.label}"
    if st.button("Run HTA", key="run_hta", help="Reads every trace of the run in a process of its own."):
        st.session_state[asked] = True
    if not st.session_state.get(asked):
        return
    for table in queries.hta_tables(ref):
        st.markdown(f"**HTA: {text.code(table.name)}**")
        if table.error is None:
            widgets.table(arrow_table(hta_table(table)), key=f"hta {table.name}")
        else:
            st.warning(f"HTA returned no table; its message: {text.code(table.error)}", icon=":material/warning:")


if __name__ == "__main__":
    page()
