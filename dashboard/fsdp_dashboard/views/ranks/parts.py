"""The peaks of the ranks, as figures that the Overview and the Ranks page share."""

import streamlit as st

from fsdp_dashboard import data, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.ranks import queries as data_ranks
from fsdp_dashboard.views.ranks.charts import peaks_figure
from fsdp_dashboard.views.ranks.grid_chart import extremes, rank_grid_figure


def rank_peaks(ref: RunRef, run: RunFacts, *, label: str | None, max_bytes: int | None = None) -> None:
    """What each rank's peak is made of; of many ranks the heat map. `max_bytes` is the scale of several figures."""
    widgets.section("Peak of each rank", label)
    found = [r.peak for r in run.ranks if r.peak]
    if not found:
        widgets.not_recorded("Peak", ref.label, data.not_recorded(ref).get("peak", "no allocator events"))
    elif len(run.ranks) > data_ranks.MANY:
        rank_map(ref, run, data_ranks.Measure.PEAK)
    else:
        drawn = peaks_figure(found, max_bytes=max_bytes or max(peak.allocated_bytes for peak in found))
        widgets.figure(drawn, key=f"peaks {ref.label}", alt="The peak of each rank by category")


def rank_map(ref: RunRef, run: RunFacts, measure: data_ranks.Measure) -> None:
    """One number of every rank as a heat map, and in words."""
    values = data_ranks.values(ref, run, measure)
    told_in_words = extremes(values, measure)
    drawn = rank_grid_figure(data_ranks.grid(run), values, measure)
    widgets.figure(drawn, key=f"map {ref.label}", alt=told_in_words)
    st.caption(told_in_words + ".")
