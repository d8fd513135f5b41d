"""Collectives: when each ran in one step, how much of it was exposed, and what they add up to."""

import streamlit as st

from fsdp_dashboard import data, state, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import arrow_table, markdown
from fsdp_dashboard.views.collectives import queries
from fsdp_dashboard.views.collectives.breakdown_chart import breakdown_figure
from fsdp_dashboard.views.collectives.charts import steps_figure, timeline_figure
from fsdp_profile.present import breakdown, collectives
from fsdp_profile.present.clocks import clocks
from fsdp_profile.present.values import Table


def page() -> None:
    """One run, one rank or all, one step; then the totals."""
    st.subheader("Collectives")
    widgets.one_run(one_run, all_ranks=True)


def one_run(ref: RunRef, run: RunFacts, step_column: "st.delta_generator.DeltaGenerator") -> None:
    """The collectives of one run."""
    chosen = state.current(data.catalogue())
    reported = queries.rank_reported(run, chosen.rank)
    summary = queries.summary(ref, rank=reported)
    steps = queries.step_totals(ref, rank=reported)
    if summary is None:
        why = data.not_recorded(ref).get("collectives", f"rank {reported} has none in the training steps")
        widgets.not_recorded("Collectives", ref.label, why)
        time_by_step(ref, rank=reported)
        return
    with step_column:
        state.pick_exposed_step(total.step for total in steps)
    chosen = state.current(data.catalogue())
    st.markdown(markdown(collectives.exposed_time(summary, rank=reported, num_steps=len(steps))))
    st.markdown(markdown(collectives.traffic(queries.step_traffic(ref, rank=reported), rank=reported)))
    rank = None if chosen.all_ranks else reported
    step = queries.most_exposed(steps) if chosen.step is None else chosen.step
    timeline(ref, rank=rank, step=step)
    widgets.section(f"Per step, rank {reported}")
    alt = "Collective time of each step, divided into exposed and overlapped time"
    widgets.figure(steps_figure(steps), key="steps", alt=alt)
    time_by_step(ref, rank=reported)
    totals(ref, rank=rank)


def timeline(ref: RunRef, *, rank: int | None, step: int) -> None:
    """One step."""
    whose = "all ranks" if rank is None else f"rank {rank}"
    widgets.section(f"Step {step}, {whose}")
    drawn = timeline_figure(queries.step_calls(ref, rank=rank, step=step))
    alt = "The collectives of one step as bars over time, by rank and kind, exposed parts hatched"
    widgets.figure(drawn, key="timeline", alt=alt)
    meta = drawn["layout"]["meta"]
    missing = left_out(meta["calls_left_out"], meta["windows_left_out"])
    if missing:
        st.caption(missing)
    if rank is None:
        st.caption(markdown(clocks(queries.cross_rank(ref).clock)))


def time_by_step(ref: RunRef, *, rank: int) -> None:
    """What the device did in each step, collectives or not."""
    widgets.section(f"Where each step's time went, rank {rank}")
    found = queries.step_breakdowns(ref, rank=rank)
    if not found:
        widgets.not_recorded("Time by step", ref.label, "no kernels or operators were recorded in the training steps")
        return
    alt = "Each step as a bar of compute, exposed communication, copies and idle time"
    widgets.figure(breakdown_figure(found), key="breakdown", alt=alt)
    widgets.table(arrow_table(breakdown.steps_table(found, rank=rank)), key="breakdown table")
    st.caption(breakdown.meaning(found.values()))


def totals(ref: RunRef, *, rank: int | None) -> None:
    """Sums by kind, group and unit; of all ranks also by rank."""
    sums(collectives.kind_totals_table(queries.by_kind(ref, rank=rank)), key="by_kind")
    st.caption(collectives.SUMS_NOTE)
    sums(collectives.group_totals_table(queries.by_group(ref, rank=rank)), key="by_group")
    sums(collectives.unit_totals_table(queries.by_unit(ref, rank=rank)), key="by_unit")
    if rank is None:
        sums(collectives.rank_totals_table(queries.by_rank(ref)), key="by_rank")
    st.caption(collectives.BANDWIDTH_NOTE)


def sums(found: Table, *, key: str) -> None:
    """A table under its title."""
    widgets.section(found.title)
    widgets.table(arrow_table(found), key=key)


def left_out(num_calls: int, num_windows: int) -> str:
    """How many bars the timeline does not draw because there are too many; empty when it draws all."""
    parts = [f"{num_calls:,} of the shortest collectives"] if num_calls else []
    parts += [f"{num_windows:,} of the shortest exposed time windows"] if num_windows else []
    return f"{' and '.join(parts)} are not drawn." if parts else ""


if __name__ == "__main__":
    page()
