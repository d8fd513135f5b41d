"""Compare: the baseline and one other run on one axis, what changed between their peaks, and why."""

import streamlit as st

from fsdp_dashboard import data, state, tables, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.compare import queries as data_compare
from fsdp_dashboard.views.compare import tables as tables_compare
from fsdp_dashboard.views.compare import text as text_compare
from fsdp_dashboard.views.compare.charts import aligned_figure, change_figure
from fsdp_dashboard.views.compare.queries import ComparedRun
from fsdp_dashboard.views.memory.charts import MemoryPanel
from fsdp_dashboard.views.overview import findings_queries, findings_text

Runs = list[tuple[RunRef, RunFacts]]


def page() -> None:
    """Two runs beside each other; of more than two, the one that the picker names."""
    st.subheader("What does sharding change?")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    runs = [(ref, run) for ref, run in widgets.readable(chosen.runs) if run.worst is not None]
    if len(runs) < 2:
        st.info(text_compare.TOO_FEW, icon=":material/compare_arrows:")
        return
    with widgets.told(", ".join(ref.label for ref, _ in runs)):
        compared(runs)


def compared(runs: Runs) -> None:
    """The comparison of the chosen runs."""
    found = data.comparison([ref for ref, _ in runs])
    base = data_compare.baseline_of(found)
    at = next(i for i, c in enumerate(found.runs) if c is base)
    others = [ref for i, (ref, _) in enumerate(runs) if i != at]
    columns = st.columns(3)
    with columns[0]:
        state.pick_units_run(others)
    chosen = state.current(data.catalogue()).units_run
    other = next((i for i, (ref, _) in enumerate(runs) if ref == chosen and i != at), 1 if at == 0 else 0)
    mine = found.runs[other]
    st.markdown(text.verdict_of_comparison(found)[other - (other > at)])
    if found.differences:
        lines = text.as_list([text.code(line) for line in found.differences])
        st.warning(f"These runs differ in more than how they shard:\n\n{lines}", icon=":material/difference:")
    with columns[1]:
        state.pick_step(data.recorded_steps(runs[other][0], rank=mine.peak.rank), all_steps=False)
    with columns[2]:
        state.pick_alignment()
    two_panels(runs[at][0], runs[other][0], base, mine)
    widgets.section("From one peak to the other")
    st.markdown(text_compare.change(mine))
    alt = "From the baseline's peak to the other run's, one bar for each category that changed"
    widgets.figure(change_figure(base, mine), key="change", alt=alt)
    names = tables.column_names([run for _, run in runs])
    widgets.table(tables.comparison_table(found, names), key="by_category")
    widgets.section("Peak by phase")
    widgets.table(tables_compare.rows_table(found.phases, names, what="phase", base=at, other=other), key="by_phase")
    widgets.section("Units at the peak")
    if found.units:
        widgets.table(tables_compare.rows_table(found.units, names, what="unit", base=at, other=other), key="by_unit")
        st.caption(text_compare.UNITS)
    else:
        st.caption(f"Not recorded: {text_compare.NO_UNITS}.")
    widgets.section("What a step costs")
    widgets.table(tables_compare.cost_table(found.runs, names), key="cost")
    st.caption(text_compare.SENDS)
    widgets.section("Losses")
    st.markdown(text_compare.losses(mine))
    if mine.losses is not None:
        widgets.table(tables_compare.losses_table(mine), key="losses")
    why(runs[other][0])


def two_panels(base_ref: RunRef, ref: RunRef, base: ComparedRun, mine: ComparedRun) -> None:
    """One step of each, on one axis of time."""
    chosen = state.current(data.catalogue())
    first = data_compare.step_of(base_ref, base, step=chosen.step)
    second = data_compare.step_of(ref, mine, step=chosen.step)
    by_phase = chosen.by_phase
    if by_phase:
        second = data_compare.onto(second, first, label=ref.label)
    panels = [MemoryPanel(title=base_ref.label, step=first), MemoryPanel(title=ref.label, step=second)]
    x_title = "ms in the baseline's step, phases aligned" if by_phase else "ms in step"
    alt = "Allocated bytes by category over one step of both runs, on one axis of time and one of bytes"
    widgets.figure(aligned_figure(panels, x_title=x_title), key="aligned", alt=alt)
    if by_phase:
        st.caption(text_compare.ALIGNED_BY_PHASE)


def why(ref: RunRef) -> None:
    """Why the sharded run is not smaller; nothing for one that replicates."""
    reasons = findings_queries.why_not_smaller(ref)
    if reasons:
        widgets.section("Why is FSDP not smaller?", ref.label)
        st.markdown("\n".join(f"- {findings_text.reason(test)}" for test in reasons))


if __name__ == "__main__":
    page()
