"""Collectives: when each ran in one step, how much of it was exposed, and what they add up to."""

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.collectives import queries as data_collectives
from fsdp_dashboard.views.collectives import tables as tables_collectives
from fsdp_dashboard.views.collectives.breakdown_chart import breakdown_figure
from fsdp_dashboard.views.collectives.charts import steps_figure, timeline_figure

SUMS = "Sums over the calls of {}: calls that overlap in time each count in full here, but once in the sentence on top."
BANDWIDTH = (
    "algbw and busbw are those of nccl-tests, medians over the collectives matched across ranks; their time runs "
    "from the start of the last rank to the end."
)


def page() -> None:
    """One run, one rank or all, one step; then the totals."""
    st.subheader("Collectives")
    widgets.one_run(collectives, all_ranks=True)


def collectives(ref: RunRef, run: RunFacts, step_column: "st.delta_generator.DeltaGenerator") -> None:
    """The collectives of one run."""
    chosen = state.current(data.catalogue())
    reported = data_collectives.rank_reported(run, chosen.rank)
    summary = data_collectives.summary(ref, rank=reported)
    steps = data_collectives.step_totals(ref, rank=reported)
    if summary is None:
        why = data.not_recorded(ref).get("collectives", f"rank {reported} has none in the training steps")
        widgets.not_recorded("Collectives", ref.label, why)
        time_by_step(ref, rank=reported)
        return
    with step_column:
        state.pick_exposed_step(total.step for total in steps)
    chosen = state.current(data.catalogue())
    st.markdown(text.verdict_of_collectives(reported, summary, len(steps)))
    st.markdown(text.traffic(reported, data_collectives.step_traffic(ref, rank=reported)))
    rank = None if chosen.all_ranks else reported
    step = data_collectives.most_exposed(steps) if chosen.step is None else chosen.step
    timeline(ref, rank=rank, step=step)
    widgets.section(f"Per step, rank {reported}")
    alt = "Collective time of each step, the exposed part apart"
    widgets.figure(steps_figure(steps), key="steps", alt=alt)
    time_by_step(ref, rank=reported)
    totals(ref, rank=rank)


def timeline(ref: RunRef, *, rank: int | None, step: int) -> None:
    """One step."""
    whose = "all ranks" if rank is None else f"rank {rank}"
    widgets.section(f"Step {step}, {whose}")
    drawn = timeline_figure(data_collectives.step_calls(ref, rank=rank, step=step))
    alt = "The collectives of one step as bars over time, by rank and kind, exposed parts hatched"
    widgets.figure(drawn, key="timeline", alt=alt)
    meta = drawn["layout"]["meta"]
    missing = text.left_out(meta["calls_left_out"], meta["stretches_left_out"])
    if missing:
        st.caption(missing)
    if rank is None:
        st.caption(text.clocks(data_collectives.cross_rank(ref).clock))


def time_by_step(ref: RunRef, *, rank: int) -> None:
    """What the device did in each step, collectives or not."""
    widgets.section(f"Where each step's time went, rank {rank}")
    found = data_collectives.step_breakdowns(ref, rank=rank)
    if not found:
        widgets.not_recorded("Time by step", ref.label, "no kernels or operators were recorded in the training steps")
        return
    alt = "Each step as a bar of compute, exposed communication, copies and idle time"
    widgets.figure(breakdown_figure(found), key="breakdown", alt=alt)
    widgets.table(tables_collectives.breakdown_table(found), key="breakdown table")
    st.caption(text.host_bound(found.values()))


def totals(ref: RunRef, *, rank: int | None) -> None:
    """Sums by kind, group and unit; of all ranks also by rank."""
    widgets.section("By kind")
    st.caption(SUMS.format("all ranks" if rank is None else f"rank {rank}"))
    widgets.table(tables_collectives.kinds_table(data_collectives.by_kind(ref, rank=rank)), key="by_kind")
    widgets.section("By group")
    by_group = data_collectives.by_group(ref, rank=rank)
    widgets.table(tables_collectives.groups_table(by_group), key="by_group")
    widgets.section("By unit")
    by_unit = data_collectives.by_unit(ref, rank=rank)
    widgets.table(tables_collectives.call_units_table(by_unit), key="by_unit")
    if rank is None:
        widgets.section("By rank")
        by_rank = data_collectives.by_rank(ref)
        widgets.table(tables_collectives.call_ranks_table(by_rank), key="by_rank")
    st.caption(BANDWIDTH)


if __name__ == "__main__":
    page()
