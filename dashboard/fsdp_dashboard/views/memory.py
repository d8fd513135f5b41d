"""Memory: what was allocated when, by category; several runs on one scale."""

import streamlit as st

from fsdp_dashboard import data, parts, state, tables
from fsdp_dashboard.charts.memory import MemoryPanel, StepsPanel, memory_figure, steps_figure
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.state import Selection

Shown = list[tuple[RunRef, int]]


def page() -> None:
    """One step of each run, or the peaks of all steps; then the biggest blocks at the peak."""
    st.subheader("Memory over time")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        parts.nothing_chosen(catalogue)
        return
    runs = parts.readable(chosen.runs)
    pickers(runs)
    chosen = state.current(catalogue)
    shown: Shown = []
    for ref, run in runs:
        with parts.told(ref.label):
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
            with parts.told(ref.label):
                steps |= set(data.recorded_steps(ref, rank=run.worst.rank))
    with left:
        state.pick_rank(r.rank for _, run in runs for r in run.ranks)
    with right:
        state.pick_step(steps)


def one_step(shown: Shown, chosen: Selection) -> None:
    """The ledger of one step of each run."""
    panels, peaks = [], []
    for ref, rank in shown:
        with parts.told(ref.label):
            found = data.peak(ref, rank=rank, step=chosen.step)
            panels.append(MemoryPanel(title=ref.label, step=data.step_ledger(ref, rank=rank, step=found.step)))
            peaks.append((ref, found))
    if not panels:
        return
    alt = "Allocated bytes by category over one step, one panel per run, with the peak marked"
    parts.figure(memory_figure(panels), key="memory", alt=alt)
    for ref, found in peaks:
        parts.section("Biggest blocks at the peak", ref.label)
        with parts.told(ref.label):
            blocks = data.biggest_blocks(ref, rank=found.rank, event=found.event)
            names = data.unit_names(ref, rank=found.rank)
            parts.table(tables.blocks_table(blocks, names), key=f"blocks {ref.label}")


def all_steps(shown: Shown) -> None:
    """The peak of every step of each run."""
    panels = []
    for ref, rank in shown:
        with parts.told(ref.label):
            panels.append(StepsPanel(title=ref.label, peaks=data.peak_of_steps(ref, rank=rank)))
    if panels:
        alt = "The peak of every step by category, one panel per run"
        parts.figure(steps_figure(panels), key="steps", alt=alt)


if __name__ == "__main__":
    page()
