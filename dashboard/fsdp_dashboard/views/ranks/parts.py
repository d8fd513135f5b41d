"""The peaks of the ranks, as figures that the Overview and the Ranks page share."""

import streamlit as st

from fsdp_dashboard import data, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.views.ranks import queries
from fsdp_dashboard.views.ranks.charts import peaks_figure
from fsdp_dashboard.views.ranks.grid_chart import extremes, rank_grid_figure


def rank_peaks(ref: RunRef, run: RunFacts, *, label: str | None, max_bytes: int | None = None) -> None:
    """The categories of each rank's peak, or the heat map of many ranks. Several figures share `max_bytes`."""
    widgets.section("Peak of each rank", label)
    found = [r.peak for r in run.ranks if r.peak]
    if not found:
        widgets.not_recorded("Peak", ref.label, data.not_recorded(ref).get("peak", "no allocator events"))
    elif len(run.ranks) > queries.MANY:
        rank_map(ref, run, queries.Measure.PEAK)
    else:
        drawn = peaks_figure(found, max_bytes=max_bytes or max(peak.allocated_bytes for peak in found))
        widgets.figure(drawn, key=f"peaks {ref.label}", alt="The peak of each rank by category")


def rank_map(ref: RunRef, run: RunFacts, measure: queries.Measure) -> None:
    """One number of every rank as a heat map, and in words."""
    values = queries.values(ref, run, measure)
    in_words = extremes(values, measure)
    drawn = rank_grid_figure(queries.grid(run), values, measure)
    widgets.figure(drawn, key=f"map {ref.label}", alt=in_words)
    st.caption(in_words + ".")
