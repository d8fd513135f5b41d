"""Units: when each was gathered, used, resharded and reduced, under the memory curve."""

import streamlit as st

from fsdp_dashboard import data, state, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import arrow_table
from fsdp_dashboard.views.units import queries
from fsdp_dashboard.views.units.charts import units_figure
from fsdp_profile.present import units


def page() -> None:
    """One run, one rank, one step; then the totals of all units."""
    st.subheader("Units")
    widgets.one_run(one_run)


def one_run(ref: RunRef, run: RunFacts, step_column: "st.delta_generator.DeltaGenerator") -> None:
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
    order = state.pick_units_order([queries.AS_BUILT, *queries.ORDERS])
    widgets.table(arrow_table(units.units_table(queries.ordered(summaries, order), rank=rank)), key="totals")
    st.caption(units.units_note(summaries))
    for field, why in data.not_recorded(ref).items():
        if field in {"collectives", "exposed_ns"}:
            widgets.not_recorded(f"{field} of the units", ref.label, why)
    gathered_at_once(ref, rank=rank, step=step.step, start_ns=step.start_ns)


def gathered_at_once(ref: RunRef, *, rank: int, step: int, start_ns: int) -> None:
    """The most that was gathered at once, and every gather of the step; nothing where no unit gathers (DDP)."""
    most = queries.in_flight(ref, rank=rank)
    gathers = queries.gathers(ref, rank=rank, step=step)
    why = queries.why_not_in_flight(ref, rank=rank)
    if not most and why is None:
        return
    widgets.section("Gathered at once, the most over the complete steps")
    if most:
        widgets.table(arrow_table(units.in_flight_table(most)), key="in_flight")
        st.caption(units.IN_FLIGHT_NOTE)
    elif why is not None:
        widgets.not_recorded("What was gathered at once", ref.label, why)
    if gathers.num_rows:
        listed = units.gathers_table(gathers, step=step, start_ns=start_ns)
        widgets.section(listed.title)
        widgets.table(arrow_table(listed), key="gathers")
        st.caption(units.GATHERS_NOTE)


if __name__ == "__main__":
    page()
