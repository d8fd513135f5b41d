"""Memory: what was allocated when, by category; several runs on one scale; the device around it, and what grows."""

import streamlit as st

from fsdp_dashboard import data, state, widgets
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.ledger_canvas import conversation
from fsdp_dashboard.ledger_canvas.panels import LedgerPanel, legend_of, levels_above
from fsdp_dashboard.state import Selection
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views.memory import queries
from fsdp_dashboard.views.memory.waterfall_chart import waterfall_figure
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present import device_waterfall, host_states
from fsdp_profile.present import growth as present_growth
from fsdp_profile.present.memory import blocks_table

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
            step = queries.step_window(ref, rank=rank, step=found.step)
            panels.append((ref, LedgerPanel(title=ref.label, time_window=step)))
            peaks.append((ref, found))
    ledgers(panels)
    for ref, found in peaks:
        with widgets.told(ref.label):
            growth(ref, rank=found.rank)
            device(ref, rank=found.rank, event=found.event)
            blocks = data.biggest_blocks(ref, rank=found.rank, event=found.event)
            names = data.unit_names(ref, rank=found.rank)
            rows = blocks_table(blocks, found, names, max_rows=data.MAX_BLOCKS)
            widgets.section(rows.title, ref.label)
            widgets.show(rows, key=f"blocks {ref.label}", has_note=False)


def all_steps(shown: Shown) -> None:
    """The whole recording of each run; a click opens a step."""
    panels = []
    for ref, rank in shown:
        with widgets.told(ref.label):
            whole = queries.run_window(ref, rank=rank, num_panels=len(shown))
            panels.append((ref, LedgerPanel(title=ref.label, time_window=whole)))
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
    above = " and ".join(f"{name} (up to {bytes_text(size)})" for name, size in levels_above(panels).items())
    if above:
        st.caption(f"Far above the figure, see the hover text: {above}.")


def device(ref: RunRef, *, rank: int, event: int | None) -> None:
    """What the allocator keeps beside the tensors and what else is on the device; nothing on CPU."""
    found = queries.waterfall(ref, rank=rank, event=event)
    if found is None:
        return
    widgets.section(f"Device, rank {rank}{' at the peak' if found.event is not None else ''}", ref.label)
    alt = "What is in use on the device, part by part, against its size"
    widgets.figure(waterfall_figure(found), key=f"device {ref.label}", alt=alt)
    remark = device_waterfall.moment(found)
    if remark:
        st.caption(remark)
    widgets.show(device_waterfall.waterfall_table(found), key=f"levels {ref.label}", has_note=False)
    held = queries.host_states(ref, rank=rank)
    if held is not None:
        st.info(markdown(host_states.host_states(held)), icon=":material/memory:")
    groups = queries.communicators(ref, rank=rank)
    if groups:
        widgets.show(device_waterfall.communicators_table(groups), key=f"communicators {ref.label}")
    if found.pools:
        widgets.show(device_waterfall.pools_table(found.pools), key=f"pools {ref.label}")


def growth(ref: RunRef, *, rank: int) -> None:
    """What grows step over step and where it comes from; units that a reference keeps gathered."""
    grown = queries.grown(ref, rank=rank)
    kept = queries.kept_unsharded(ref, rank=rank)
    if not grown and not kept:
        return
    widgets.section(f"Growth, rank {rank}", ref.label)
    names = data.unit_names(ref, rank=rank)
    for one in grown:
        st.warning(markdown(present_growth.growth(one)), icon=":material/trending_up:")
        if one.sites:
            widgets.show(present_growth.sites_table(one, names), key=f"sites {ref.label} {one.category.value}")
    for unit in kept:
        st.warning(markdown(present_growth.kept_unsharded(unit)), icon=":material/lock_open:")


if __name__ == "__main__":
    page()
