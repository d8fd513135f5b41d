"""Memory: what was allocated when, by category; several runs on one scale; the device around it, and what grows."""

import streamlit as st

from fsdp_dashboard import data, state, tables, widgets
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.ledger_canvas import conversation
from fsdp_dashboard.ledger_canvas.panels import LedgerPanel, legend_of, levels_above
from fsdp_dashboard.state import Selection
from fsdp_dashboard.views.memory import queries as data_memory
from fsdp_dashboard.views.memory import tables as tables_memory
from fsdp_dashboard.views.memory import text as text_memory
from fsdp_dashboard.views.memory.waterfall_chart import waterfall_figure

Shown = list[tuple[RunRef, int]]


def page() -> None:
    """One step of each run, or all of them; then the biggest blocks at the peak."""
    st.subheader("Memory over time")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    runs = widgets.readable(chosen.runs)
    pickers(runs)
    chosen = state.current(catalogue)
    shown: Shown = []
    for ref, run in runs:
        with widgets.told(ref.label):
            shown.append((ref, data.rank_shown(run, chosen.rank)))
    if chosen.all_steps:
        all_steps(shown)
    else:
        one_step(shown, chosen)


def pickers(runs: list[tuple[RunRef, RunFacts]]) -> None:
    """Rank and step."""
    left, right = st.columns(2)
    steps: set[int] = set()
    for ref, run in runs:
        if run.worst is not None:
            with widgets.told(ref.label):
                steps |= set(data.recorded_steps(ref, rank=run.worst.rank))
    with left:
        state.pick_rank(r.rank for _, run in runs for r in run.ranks)
    with right:
        state.pick_step(steps)


def one_step(shown: Shown, chosen: Selection) -> None:
    """The ledger of one step of each run."""
    panels, peaks = [], []
    for ref, rank in shown:
        with widgets.told(ref.label):
            found = data.peak(ref, rank=rank, step=chosen.step)
            step = data_memory.step_stretch(ref, rank=rank, step=found.step)
            panels.append((ref, LedgerPanel(title=ref.label, stretch=step)))
            peaks.append((ref, found))
    ledgers(panels)
    for ref, found in peaks:
        with widgets.told(ref.label):
            growth(ref, rank=found.rank)
            device(ref, rank=found.rank, event=found.event)
            widgets.section("Biggest blocks at the peak", ref.label)
            blocks = data.biggest_blocks(ref, rank=found.rank, event=found.event)
            names = data.unit_names(ref, rank=found.rank)
            widgets.table(tables.blocks_table(blocks, names), key=f"blocks {ref.label}")


def all_steps(shown: Shown) -> None:
    """The whole recording of each run; a click opens a step."""
    panels = []
    for ref, rank in shown:
        with widgets.told(ref.label):
            whole = data_memory.run_stretch(ref, rank=rank, num_panels=len(shown))
            panels.append((ref, LedgerPanel(title=ref.label, stretch=whole)))
    ledgers(panels)
    for ref, rank in shown:
        with widgets.told(ref.label):
            growth(ref, rank=rank)
            device(ref, rank=rank, event=None)


def ledgers(found: list[tuple[RunRef, LedgerPanel]]) -> None:
    """The drawing under its legend."""
    if not found:
        return
    panels = [panel for _, panel in found]
    st.html(legend_html(legend_of(panels)))
    conversation.drawn([ref for ref, _ in found], panels)
    above = text_memory.levels_above(levels_above(panels))
    if above:
        st.caption(above)


def device(ref: RunRef, *, rank: int, event: int | None) -> None:
    """What the allocator keeps beside the tensors and what else is on the device; nothing on CPU."""
    found = data_memory.waterfall(ref, rank=rank, event=event)
    if found is None:
        return
    widgets.section(f"Device, rank {rank}{' at the peak' if found.event is not None else ''}", ref.label)
    alt = "What is in use on the device, part by part, against its size"
    widgets.figure(waterfall_figure(found), key=f"device {ref.label}", alt=alt)
    remark = text_memory.device_moment(found)
    if remark:
        st.caption(remark)
    widgets.table(tables_memory.waterfall_table(found), key=f"levels {ref.label}")
    held = data_memory.host_states(ref, rank=rank)
    if held is not None:
        st.info(text_memory.host_states(held), icon=":material/memory:")
    groups = data_memory.communicators(ref, rank=rank)
    if groups:
        widgets.table(tables_memory.communicators_table(groups), key=f"communicators {ref.label}")
        st.caption(text_memory.COMMUNICATORS)
    if found.pools:
        widgets.table(tables_memory.pools_table(found.pools), key=f"pools {ref.label}")
        st.caption(text_memory.POOLS)


def growth(ref: RunRef, *, rank: int) -> None:
    """What grows step over step and where it comes from; units that something keeps gathered."""
    grown = data_memory.grown(ref, rank=rank)
    kept = data_memory.kept_unsharded(ref, rank=rank)
    if not grown and not kept:
        return
    widgets.section(f"Growth, rank {rank}", ref.label)
    names = data.unit_names(ref, rank=rank)
    for one in grown:
        st.warning(text_memory.growth(one), icon=":material/trending_up:")
        if one.sites:
            widgets.table(tables_memory.sites_table(one.sites, names), key=f"sites {ref.label} {one.category}")
    for unit in kept:
        st.warning(text_memory.kept(unit), icon=":material/lock_open:")


if __name__ == "__main__":
    page()
