"""Units: when each was gathered, used, resharded and reduced, under the memory curve."""

import streamlit as st

from fsdp_dashboard import data, state, tables, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.units import queries as data_units
from fsdp_dashboard.views.units.charts import units_figure


def page() -> None:
    """One run, one rank, one step; then the totals of all units."""
    st.subheader("Units")
    widgets.one_run(units)


def units(ref: RunRef, run: RunFacts, step_column: "st.delta_generator.DeltaGenerator") -> None:
    """The units of one run."""
    chosen = state.current(data.catalogue())
    rank = data.rank_shown(run, chosen.rank)
    with step_column:
        state.pick_step(data.recorded_steps(ref, rank=rank), all_steps=False)
    chosen = state.current(data.catalogue())
    summaries = data.unit_summaries(ref, rank=rank)
    found = data.peak(ref, rank=rank, step=chosen.step)
    if not summaries:
        what, why = (
            "Units",
            data.not_recorded(ref).get("units", "no sharded unit and no bucket was seen in this run"),
        )
        widgets.not_recorded(what, ref.label, why)
        return
    step = data.step_ledger(ref, rank=rank, step=found.step)
    spans = data.spans_between(ref, rank=rank, start_ns=step.start_ns, end_ns=step.end_ns)
    drawn = units_figure(step, spans)
    widgets.figure(drawn, key="units", alt="What each unit did in one step, under the allocated bytes by category")
    if drawn["layout"]["meta"]["spans_left_out"]:
        st.caption(f"{drawn['layout']['meta']['spans_left_out']:,} of the shortest spans are not drawn.")
    widgets.section("Totals over the complete steps")
    order = state.pick_units_order([data_units.AS_BUILT, *data_units.ORDERS])
    widgets.table(tables.units_table(data_units.ordered(summaries, order)), key="totals")
    for field, why in data.not_recorded(ref).items():
        if field in {"collectives", "exposed_ns"}:
            widgets.not_recorded(f"{field} of the units", ref.label, why)
    gathered_at_once(ref, rank=rank, step=step.step, start_ns=step.start_ns)


def gathered_at_once(ref: RunRef, *, rank: int, step: int, start_ns: int) -> None:
    """The most that was gathered at once, and every gather of the step; nothing where no unit gathers (DDP)."""
    most = data_units.in_flight(ref, rank=rank)
    gathers = data_units.gathers(ref, rank=rank, step=step)
    why = data_units.why_not_in_flight(ref, rank=rank)
    if not most and why is None:
        return
    widgets.section("Gathered at once, the most over the complete steps")
    if most:
        widgets.table(tables.in_flight_table(most), key="in_flight")
        st.caption(text.IN_FLIGHT)
    elif why is not None:
        widgets.not_recorded("What was gathered at once", ref.label, why)
    if gathers.num_rows:
        widgets.section(f"Gathers of step {step}")
        widgets.table(tables.gathers_table(gathers, start_ns=start_ns), key="gathers")
        st.caption(text.GATHERS)


if __name__ == "__main__":
    page()
