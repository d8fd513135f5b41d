"""The timeline of a step, the bars per step and the waits, bar by bar."""

import pytest
from builder import RunBuilder
from plotly.graph_objs import Figure

from fsdp_dashboard.charts.labels import plot_text
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.charts.palette import COLLECTIVE_COLOURS
from fsdp_dashboard.views.collectives.charts import (
    MAX_BARS,
    MAX_LANES,
    MAX_WINDOWS,
    OVERLAPPED_OPACITY,
    steps_figure,
    timeline_figure,
)
from fsdp_dashboard.views.ranks.charts import waits_figure
from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.timeline import RankWait, StepTotal, collective_calls, step_calls
from fsdp_profile.core.schema import CollectiveKind, Phase

MS = 1_000_000
GATHER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** %{x}"


def small():
    """Step 0 of 20 ms from 10 ms on: two gathers that overlap, compute beside 1 ms of the first, and a reduction."""
    return (
        RunBuilder()
        .step(0, 10 * MS, 30 * MS)
        .phase(Phase.FORWARD, 12 * MS, 20 * MS)
        .phase(Phase.BACKWARD, 20 * MS, 30 * MS)
        .unit("layers.0")
        .kernel(13 * MS, 14 * MS)
        .collective(GATHER, 12 * MS, 16 * MS, unit=0, size_bytes=2048, dtype="float32", sequence=3, group="0",
                    group_description="default_pg")
        .collective(GATHER, 15 * MS, 18 * MS, size_bytes=None, group_size=None)
        .collective(REDUCE, 22 * MS, 24 * MS, size_bytes=1024, phase=Phase.BACKWARD)
    )  # fmt: skip


def step_of(run, *, rank=0, step=0):
    matches = cross_rank(run)
    return step_calls(run, matches, collective_calls(run, matches, rank=rank), rank=rank, step=step)


def trace(figure, name):
    return next(t for t in figure["data"] if t["name"] == name)


def bars(drawn):
    return list(zip(drawn["y"], drawn["base"].tolist(), drawn["x"].tolist(), strict=True))


def valid(figure):
    """Plotly's own check of every property."""
    Figure(**figure)
    return figure


def test_each_kind_has_its_lane_and_colour_and_overlapping_calls_a_lane_each():
    figure = valid(timeline_figure(step_of(small().build())))
    assert bars(trace(figure, "all-gather")) == [(0, 2.0, 4.0), (1, 5.0, 3.0)]
    assert bars(trace(figure, "reduce-scatter")) == [(2, 12.0, 2.0)]
    assert figure["layout"]["yaxis"]["ticktext"] == ["all-gather", "", "reduce-scatter"]
    assert trace(figure, "all-gather")["marker"]["color"] == COLLECTIVE_COLOURS[GATHER]
    assert figure["layout"]["meta"] == {"calls_left_out": 0, "windows_left_out": 0}


def test_the_exposed_part_of_a_bar_is_hatched_in_its_full_colour():
    figure = timeline_figure(step_of(small().build()))
    exposed = trace(figure, "exposed")
    assert bars(exposed) == [(0, 2.0, 1.0), (0, 4.0, 2.0), (1, 5.0, 3.0), (2, 12.0, 2.0)]
    gather, reduce = COLLECTIVE_COLOURS[GATHER], COLLECTIVE_COLOURS[REDUCE]
    assert exposed["marker"]["color"] == [gather, gather, gather, reduce]
    assert exposed["marker"]["pattern"]["shape"] == "/"
    assert trace(figure, "all-gather")["opacity"] == OVERLAPPED_OPACITY
    assert "repeating-linear-gradient" in legend_html(figure)


def test_without_compute_the_bars_are_plain():
    figure = valid(timeline_figure(step_of(RunBuilder().step(0, 0, 9 * MS).collective(GATHER, MS, 2 * MS).build())))
    assert [t["name"] for t in figure["data"]] == ["all-gather"]
    assert trace(figure, "all-gather")["opacity"] == 1


def test_hovering_tells_what_was_recorded_and_nothing_else():
    first, second = trace(timeline_figure(step_of(small().build())), "all-gather")["customdata"]
    assert first.split("<br>") == [
        "<b>all-gather</b>, unit layers.0",
        "rank 0, forward, at 2.000 ms, for 4.00 ms",
        "bytes 2.00 KiB of float32",
        "group default_pg 0, 2 ranks, sequence 3",
        "exposed 3.00 ms (75.0 %)",
    ]
    assert second.split("<br>")[:4] == [
        "<b>all-gather</b>, no unit",
        "rank 0, forward, at 5.000 ms, for 3.00 ms",
        "bytes not recorded",
        "group name not recorded",
    ]


def test_all_ranks_have_a_lane_per_rank_and_kind_with_wait_transfer_and_bandwidth():
    run = RunBuilder()
    for rank, start in ((0, MS), (1, 4 * MS)):
        run.rank(rank).step(0, 0, 30 * MS).kernel(2 * MS, 3 * MS)
        run.collective(GATHER, start, 10 * MS, size_bytes=6_000_000).collective(REDUCE, 20 * MS, 22 * MS)
    figure = valid(timeline_figure(step_of(run.build(), rank=None)))
    assert figure["layout"]["yaxis"]["ticktext"] == [
        "0 · all-gather",
        "0 · reduce-scatter",
        "1 · all-gather",
        "1 · reduce-scatter",
    ]
    gathers = trace(figure, "all-gather")
    assert bars(gathers) == [(0, 1.0, 9.0), (2, 4.0, 6.0)]
    assert gathers["customdata"][0].split("<br>")[-2:] == [
        "waited 3.00 ms, transfer 6.00 ms",
        "algbw 1.00 GB/s, busbw 500.00 MB/s",
    ]


def test_the_view_opens_shortly_before_the_first_phase_or_call_and_names_the_phases():
    run = small().step(1, 30 * MS, 130 * MS).collective(REDUCE, 80 * MS, 90 * MS, step=1).build()
    layout = timeline_figure(step_of(run, step=1))["layout"]
    assert layout["xaxis"]["range"] == [49.0, 100.0]
    assert layout["xaxis"]["title"]["text"] == "ms in step 1"
    layout = timeline_figure(step_of(run))["layout"]
    assert [(s["x0"], s["x1"]) for s in layout["shapes"]] == [(2.0, 10.0), (10.0, 20.0)]
    assert [a["text"] for a in layout["annotations"]] == ["forward", "backward"]


def test_of_too_many_calls_the_longest_are_drawn_and_the_rest_is_counted():
    run = RunBuilder().step(0, 0, 10**9).kernel(0, 1)
    for i in range(MAX_BARS + 7):
        run.collective(GATHER, 10_000 * i + 10, 10_000 * i + 100 + i)
    figure = valid(timeline_figure(step_of(run.build())))
    assert figure["layout"]["meta"] == {"calls_left_out": 7, "windows_left_out": 0}
    drawn = trace(figure, "all-gather")
    assert (len(drawn["x"]), drawn["x"].min() * 1e6) == (MAX_BARS, pytest.approx(97))
    assert len(trace(figure, "exposed")["x"]) == MAX_BARS


def test_of_too_many_exposed_stretches_the_longest_are_drawn():
    run = RunBuilder().step(0, 0, 10**9).collective(GATHER, 0, 10**8)
    for i in range(MAX_WINDOWS + 4):
        run.kernel(10_000 * i + 5_000 - i, 10_000 * (i + 1))
    figure = timeline_figure(step_of(run.build()))
    assert figure["layout"]["meta"] == {"calls_left_out": 0, "windows_left_out": 5}
    assert len(trace(figure, "exposed")["x"]) == MAX_WINDOWS


def test_of_many_ranks_each_has_one_lane():
    run = RunBuilder()
    for rank in range(MAX_LANES):
        run.rank(rank).step(0, 0, 10 * MS)
        run.collective(GATHER, MS, 2 * MS, group_size=MAX_LANES).collective(REDUCE, 3 * MS, 4 * MS)
    figure = timeline_figure(step_of(run.build(), rank=None))
    assert figure["layout"]["yaxis"]["ticktext"] == [f"rank {rank}" for rank in range(0, MAX_LANES, 2)]
    assert trace(figure, "reduce-scatter")["y"] == list(range(MAX_LANES))


def test_each_step_is_a_bar_of_exposed_and_overlapped_time():
    totals = [StepTotal(step=4, total_ns=4 * MS, exposed_ns=3 * MS), StepTotal(step=5, total_ns=MS, exposed_ns=0)]
    figure = valid(steps_figure(totals))
    assert [(t["name"], t["x"], t["y"]) for t in figure["data"]] == [
        ("exposed", ["4", "5"], [3.0, 0.0]),
        ("overlapped", ["4", "5"], [1.0, 1.0]),
    ]
    assert figure["data"][0]["customdata"][0] == "<b>step 4</b><br>collectives 4.00 ms<br>exposed 3.00 ms (75.0 %)"


def test_steps_without_compute_are_one_plain_bar():
    figure = valid(steps_figure([StepTotal(step=0, total_ns=4 * MS, exposed_ns=None)]))
    assert [(t["name"], t["y"]) for t in figure["data"]] == [("collectives", [4.0])]


def test_waits_stand_on_the_transfers_of_each_rank():
    waits = [RankWait(rank=0, count=8, wait_ns=3 * MS, transfer_ns=MS), RankWait(rank=7, count=8, wait_ns=0,
             transfer_ns=MS)]  # fmt: skip
    figure = valid(waits_figure(waits, max_ns=10 * MS))
    assert [(t["name"], t["x"], t["y"]) for t in figure["data"]] == [
        ("transfer", ["0", "7"], [1.0, 1.0]),
        ("wait for the last rank", ["0", "7"], [3.0, 0.0]),
    ]
    assert figure["layout"]["yaxis"]["range"] == [0, 11.0]


def test_hostile_names_reach_the_timeline_only_as_text():
    run = RunBuilder().step(0, 0, 9 * MS).unit(HOSTILE)
    run.collective(GATHER, MS, 2 * MS, unit=0, group=HOSTILE, group_description=HOSTILE, dtype=HOSTILE, phase=HOSTILE)
    run.row("collectives", kind=HOSTILE, start_ns=3 * MS, end_ns=4 * MS, issue_ns=0, step=0, phase="", unit=0,
            transport="")  # fmt: skip
    figure = valid(timeline_figure(step_of(run.build())))
    assert plot_text(HOSTILE) in figure["layout"]["yaxis"]["ticktext"]
    assert "<img" not in repr(figure)
    assert "$x$" not in repr(figure)
    assert all("onerror" not in t.get("hovertemplate", "") for t in figure["data"])
