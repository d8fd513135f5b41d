"""Compare: the baseline and one other run on one axis, what changed between their peaks, and why."""

import streamlit as st

from fsdp_dashboard import data, state, tables, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views.compare import queries
from fsdp_dashboard.views.compare.charts import aligned_figure, change_figure
from fsdp_dashboard.views.compare.queries import ComparedRun
from fsdp_dashboard.views.memory.charts import MemoryPanel
from fsdp_dashboard.views.overview.findings_text import reason
from fsdp_dashboard.views.overview.queries import why_not_smaller
from fsdp_profile.present import compare
from fsdp_profile.present.findings import WHY_TITLE

TOO_FEW = "Choose two runs or more in the sidebar; those without allocator events do not count."
ALIGNED_BY_PHASE = (
    "Phases of the second run are stretched onto the baseline's: forward, backward and optimizer begin at the same "
    "place. Bytes are unchanged."
)

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
        st.info(TOO_FEW, icon=":material/compare_arrows:")
        return
    with widgets.told(", ".join(ref.label for ref, _ in runs)):
        compared(runs)


def compared(runs: Runs) -> None:
    """The comparison of the chosen runs."""
    found = data.comparison([ref for ref, _ in runs])
    base = compare.baseline_of(found)
    at = next(i for i, c in enumerate(found.runs) if c is base)
    others = [ref for i, (ref, _) in enumerate(runs) if i != at]
    columns = st.columns(3)
    with columns[0]:
        state.pick_units_run(others)
    chosen = state.current(data.catalogue()).units_run
    other = next((i for i, (ref, _) in enumerate(runs) if ref == chosen and i != at), 1 if at == 0 else 0)
    mine = found.runs[other]
    st.markdown(markdown(compare.verdicts(found)[other - (other > at)]))
    if found.differences:
        lines = text.as_list([text.code(line) for line in found.differences])
        st.warning(f"{compare.DIFFER}:\n\n{lines}", icon=":material/difference:")
    with columns[1]:
        state.pick_step(data.recorded_steps(runs[other][0], rank=mine.peak.rank), all_steps=False)
    with columns[2]:
        state.pick_alignment()
    two_panels(runs[at][0], runs[other][0], base, mine)
    widgets.section("From one peak to the other")
    st.markdown(markdown(compare.change(mine)))
    alt = "From the baseline's peak to the other run's, one bar for each category that changed"
    widgets.figure(change_figure(base, mine), key="change", alt=alt)
    names = tables.column_names([run for _, run in runs])
    widgets.show(compare.categories_table(found, names=names), key="by_category")
    phases, units = compare.phases_table(found, names=names), compare.units_table(found, names=names)
    widgets.section(phases.title)
    widgets.show(phases, key="by_phase")
    widgets.section(units.title)
    if found.units:
        widgets.show(units, key="by_unit")
    else:
        st.caption(markdown(compare.NO_UNITS))
    costs = compare.costs_table(found, names=names)
    widgets.section(costs.title)
    widgets.show(costs, key="cost")
    widgets.section("Losses")
    st.markdown(markdown(compare.losses_of(mine)))
    if mine.losses is not None:
        widgets.show(compare.losses_table([mine], baseline=found.baseline.name), key="losses")
    why(runs[other][0])


def two_panels(base_ref: RunRef, ref: RunRef, base: ComparedRun, mine: ComparedRun) -> None:
    """One step of each, on one axis of time."""
    chosen = state.current(data.catalogue())
    first = queries.step_of(base_ref, base, step=chosen.step)
    second = queries.step_of(ref, mine, step=chosen.step)
    by_phase = chosen.by_phase
    if by_phase:
        second = queries.onto(second, first, label=ref.label)
    panels = [MemoryPanel(title=base_ref.label, step=first), MemoryPanel(title=ref.label, step=second)]
    x_title = "ms in the baseline's step, phases aligned" if by_phase else "ms in step"
    alt = "Allocated bytes by category over one step of both runs, on one axis of time and one of bytes"
    widgets.figure(aligned_figure(panels, x_title=x_title), key="aligned", alt=alt)
    if by_phase:
        st.caption(ALIGNED_BY_PHASE)


def why(ref: RunRef) -> None:
    """Why the sharded run is not smaller; nothing for one that replicates."""
    reasons = why_not_smaller(ref)
    if reasons:
        widgets.section(WHY_TITLE, ref.label)
        st.markdown("\n".join(f"- {reason(test)}" for test in reasons))


if __name__ == "__main__":
    page()
