import re

import numpy as np
import pytest
from builder import RunBuilder, small_step
from hypothesis import given
from hypothesis import strategies as st
from plotly.graph_objs import Figure

from fsdp_dashboard.charts.labels import byte_scale, plot_text, short_text, short_unit, whole_ticks
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.views.memory.charts import MemoryPanel, memory_figure
from fsdp_dashboard.views.overview.charts import PeakBar, composition_figure
from fsdp_dashboard.views.ranks.charts import peaks_figure, step_times_figure
from fsdp_dashboard.views.units.charts import MAX_SPANS, units_figure
from fsdp_profile.analysis.memory.downsampling import MAX_ROWS, kept_rows
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.analysis.memory.step_ledger import step_ledger
from fsdp_profile.analysis.spans.recorded import spans_between
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, SpanKind, Strategy

MIB = 1 << 20
MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** %{x}"


def panel(run, *, step=0, title="small"):
    return MemoryPanel(title=title, step=step_ledger(run, rank=0, step=step))


def trace(figure, name, **more):
    found = [t for t in figure["data"] if t["name"] == name and all(t.get(k) == v for k, v in more.items())]
    assert len(found) == 1, (name, [t["name"] for t in figure["data"]])
    return found[0]


def valid(figure):
    """Plotly's own check of every property."""
    Figure(**figure)
    return figure


# -- memory


def test_memory_figure_draws_exact_bytes_until_the_end_of_the_step():
    figure = valid(memory_figure([panel(small_step().build())]))
    activation = trace(figure, "activations")
    assert activation["x"].tolist() == [0.0, 2.0, 8.0, 10.0]
    assert activation["y"].tolist() == [0.0, 2.0, 0.0, 0.0]
    assert trace(figure, "parameters")["y"].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert activation["line"]["shape"] == "hv"


def test_memory_figure_tells_phase_unit_and_categories_at_each_moment():
    total = trace(memory_figure([panel(small_step().build())]), "allocated")
    assert total["y"].tolist() == [1.0, 3.0, 1.0, 1.0]
    assert total["hovertemplate"] == "%{customdata}<extra></extra>"
    assert total["customdata"][1].split("<br>") == [
        "<b>allocated 3.00 MiB</b>",
        "forward, active unit layers.0",
        "activations 2.00 MiB",
        "parameters 1.00 MiB",
    ]
    at_the_end = ["<b>allocated 1.00 MiB</b>", "backward, no active unit", "parameters 1.00 MiB"]
    assert total["customdata"][3].split("<br>") == at_the_end


def test_memory_figure_marks_the_peak():
    figure = memory_figure([panel(small_step().build())])
    mark = trace(figure, "peak")
    assert (mark["x"], mark["y"]) == ([2.0], [3.0])
    assert "<b>peak 3.00 MiB</b>" in [a["text"] for a in figure["layout"]["annotations"]]


def test_memory_figure_shows_phases_behind_and_names_those_with_room():
    builder = small_step().phase(Phase.OPTIMIZER, 19 * MS, 20 * MS)
    layout = memory_figure([panel(builder.build())])["layout"]
    assert [(s["x0"], s["x1"]) for s in layout["shapes"]] == [(0.0, 5.0), (5.0, 10.0), (9.0, 10.0)]
    assert [a["text"] for a in layout["annotations"] if not a["showarrow"]] == ["forward", "backward"]


def test_panels_of_several_runs_share_one_scale_and_one_legend():
    big = RunBuilder("big").step(0, 0, 20 * MS).alloc(at=1, size=8 * MIB).build()
    figure = valid(memory_figure([panel(big, title="big"), panel(small_step().build())]))
    layout = figure["layout"]
    assert layout["yaxis"]["range"] == layout["yaxis2"]["range"] == [0, 8 * HEADROOM]
    # Each panel has its own time: a short step beside a long one is not a sliver.
    assert [layout["xaxis"]["range"], layout["xaxis2"]["range"]] == [[0.0, 20.0], [0.0, 10.0]]
    assert [t["showlegend"] for t in figure["data"] if t["name"] == "activations"] == [True, False]
    texts = [a["text"] for a in layout["annotations"]]
    assert "<b>big</b>, rank 0, step 0" in texts
    assert texts.count("highest of all: 8.00 MiB") == 1


def test_the_view_opens_shortly_before_the_first_phase():
    run = (
        RunBuilder()
        .step(0, 0, 1000 * MS)
        .phase(Phase.OTHER, 0, 400 * MS)
        .phase(Phase.FORWARD, 400 * MS, 1000 * MS)
        .alloc(at=1, size=4)
        .build()
    )
    layout = memory_figure([panel(run), panel(small_step().build())])["layout"]
    assert layout["xaxis"]["range"] == [382.0, 1000.0]
    assert layout["xaxis2"]["range"] == [0.0, 10.0]


def test_several_panels_share_the_rows_of_one_figure():
    builder = RunBuilder().step(0, 0, 10**6)
    for i in range(1_000):
        builder.alloc(at=i * 10, free=i * 10 + 25, size=1 + i % 7)
    one = MemoryPanel(title="long", step=step_ledger(builder.build(), rank=0, step=0))
    drawn = [len(t["x"]) for t in memory_figure([one, one, one])["data"] if t["name"] == "allocated"]
    assert sum(drawn) <= MAX_ROWS


def test_categories_without_bytes_are_not_drawn():
    names = [t["name"] for t in memory_figure([panel(small_step().build())])["data"]]
    assert names == ["parameters", "activations", "allocated", "peak"]


# -- fewer rows


def test_few_rows_are_all_kept():
    assert kept_rows(np.array([3, 1, 2]), np.array([5, 6, 9])).tolist() == [0, 1, 2]


def test_each_bin_of_time_keeps_its_least_greatest_and_last_total():
    total = np.array([5, 9, 1, 5, 5, 2, 8, 5])
    t_ns = np.array([0, 1, 2, 3, 100, 101, 102, 103])
    assert kept_rows(total, t_ns, max_rows=7).tolist() == [0, 1, 2, 3, 5, 6, 7]


def test_what_is_held_into_a_quiet_stretch_is_what_was_held():
    """A burst, then one event that nothing follows for nearly all of the time, then a burst."""
    rng = np.random.default_rng(7)
    t_ns = np.concatenate([np.arange(3_000), [3_000], 1_000_000 + np.arange(3_000)])
    total = np.concatenate([rng.integers(0, 1 << 40, 3_000), [77], rng.integers(0, 1 << 40, 3_000)])
    rows = kept_rows(total, t_ns, max_rows=100)
    assert len(rows) <= 100
    assert total[rows[np.searchsorted(t_ns[rows], 500_000, side="right") - 1]] == 77


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=400), st.integers(6, 60))
def test_a_thinned_ledger_is_off_for_less_than_a_bin_at_a_time(events, max_rows):
    t_ns = np.cumsum([gap for gap, _ in events])
    total = np.array([size for _, size in events])
    rows = kept_rows(total, t_ns, max_rows=max_rows)
    assert len(rows) <= max_rows
    assert {int(total.argmin()), int(total.argmax())} <= set(rows.tolist())
    moments = np.arange(t_ns[0], t_ns[-1] + 1)
    true = total[np.searchsorted(t_ns, moments, side="right") - 1]
    drawn = total[rows[np.searchsorted(t_ns[rows], moments, side="right") - 1]]
    off = np.flatnonzero(true != drawn)
    longest = max((len(part) for part in np.split(off, np.flatnonzero(np.diff(off) > 1) + 1)), default=0)
    assert longest <= 2 * (t_ns[-1] - t_ns[0]) / max(max_rows // 6, 1) + 1


@pytest.mark.parametrize("num_rows", [MAX_ROWS + 1, 5_000, 99_991])
def test_thinning_keeps_the_peak_and_the_bound(num_rows):
    total = np.random.default_rng(num_rows).integers(0, 1 << 40, num_rows)
    rows = kept_rows(total, np.arange(num_rows))
    assert len(rows) <= MAX_ROWS
    assert total.argmax() in rows
    assert total.argmin() in rows
    assert (rows[0], rows[-1]) == (0, num_rows - 1)
    assert (np.diff(rows) > 0).all()


def test_a_long_step_is_drawn_with_few_rows_that_all_existed():
    builder = RunBuilder().step(0, 0, 10_000 * 10)
    for i in range(2_000):
        category = Category.ACTIVATION if i % 3 else Category.TEMPORARY
        builder.alloc(at=i * 10, free=i * 10 + 25, size=1 + (i * 7919) % 1000, category=category)
    step = step_ledger(builder.build(), rank=0, step=0)
    figure = memory_figure([MemoryPanel(title="long", step=step)])
    assert len(step.ledger.t_ns) == 4_001
    drawn = np.array([trace(figure, c)["y"] for c in ("activations", "temporaries")]) * byte_scale(2_999).unit_bytes
    states = set(
        zip(
            *(step.ledger.by_category[c].tolist() for c in (Category.ACTIVATION, Category.TEMPORARY)),
            strict=True,
        )
    )
    assert drawn.shape[1] <= MAX_ROWS
    assert {tuple(round(v) for v in state) for state in drawn.T} <= states
    assert round(drawn.sum(axis=0).max()) == step.ledger.allocated_bytes.max()


# -- overview


def bar(run, **more):
    return PeakBar(title=run.name, strategy=str(run.manifest.strategy), peak=peak(run, rank=0), **more)


def test_composition_is_stacked_in_bytes_on_one_scale():
    ddp = RunBuilder("d", strategy=Strategy.DDP).alloc(at=0, size=4 * MIB, category=Category.PARAM).build()
    fsdp = RunBuilder("f").alloc(at=0, size=MIB, category=Category.PARAM).alloc(at=1, size=MIB).build()
    figure = valid(composition_figure([bar(ddp), bar(fsdp, reduction_ratio=0.5)]))
    assert trace(figure, "parameters")["x"].tolist() == [4.0, 1.0]
    assert trace(figure, "activations")["x"].tolist() == [0.0, 1.0]
    assert trace(figure, "activations")["text"] == ["", "50.0 %"]
    assert trace(figure, "activations")["customdata"][1] == ("f", "1.00 MiB", "50.0 %")
    assert [a["text"] for a in figure["layout"]["annotations"]] == [
        "<b>DDP 4.00 MiB</b> · d",
        "<b>FSDP2 2.00 MiB</b> (\N{MINUS SIGN}50.0 %) · f",
    ]


@pytest.mark.parametrize(("total", "is_drawn"), [(8 * MIB, True), (80 * MIB, False), (None, False)])
def test_the_device_is_drawn_where_it_does_not_squash_the_bars(total, is_drawn):
    run = RunBuilder().alloc(at=0, size=4 * MIB).build()
    layout = composition_figure([bar(run)], device_total_bytes=total)["layout"]
    assert [s["x0"] for s in layout["shapes"]] == ([8.0] if is_drawn else [])


# -- units


def test_units_figure_puts_spans_on_the_axis_of_the_memory_curve():
    run = (
        small_step()
        .span(1, SpanKind.UNSHARDED, 11 * MS, 14 * MS, size=MIB)
        .span(1, SpanKind.ALL_GATHER, 11 * MS, 12 * MS, size=MIB, prefetched=True)
        .span(1, SpanKind.RESHARD, 14 * MS, 14 * MS + 1000, size=MIB)
        .span(1, SpanKind.REDUCE_SCATTER, 16 * MS, 17 * MS)
        .build()
    )
    step = step_ledger(run, rank=0, step=0)
    figure = valid(units_figure(step, spans_between(run, rank=0, start_ns=10 * MS, end_ns=20 * MS)))
    gather = trace(figure, "gather")
    assert (gather["base"].tolist(), gather["x"].tolist(), gather["y"]) == ([1.0], [1.0], [1])
    assert gather["customdata"] == [["layers.0", "all-gather", "1.00 MiB", 1.0, 1.0, ", prefetched"]]
    assert trace(figure, "reshard")["x"].tolist() == [4.0]
    assert trace(figure, "forward")["y"] == [0, 1]
    assert trace(figure, "reduce")["base"].tolist() == [6.0]
    assert trace(figure, "unsharded")["opacity"] < 0.5
    layout = figure["layout"]
    assert layout["yaxis2"]["ticktext"] == ["(root)", "layers.0"]
    assert layout["xaxis"]["range"] == [0.0, 10.0]
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1]


def test_the_hover_of_a_gather_says_who_prefetched_it_where_that_is_known():
    builder = small_step()
    for at, by in ((11, "IMPLICIT"), (12, "EXPLICIT"), (13, "")):
        builder.span(1, SpanKind.ALL_GATHER, at * MS, (at + 1) * MS, prefetched=True, prefetch=by)
    run = builder.span(1, SpanKind.ALL_GATHER, 15 * MS, 16 * MS, prefetch="").build()
    spans = spans_between(run, rank=0, start_ns=10 * MS, end_ns=20 * MS)
    gather = trace(units_figure(step_ledger(run, rank=0, step=0), spans), "gather")
    told = [row[5] for row in gather["customdata"]]
    assert told == [", prefetched (implicit)", ", prefetched (explicit)", ", prefetched", ""]


def test_of_too_many_spans_the_longest_are_drawn_and_the_rest_is_counted():
    builder = small_step()
    for i in range(MAX_SPANS + 10):
        builder.span(1, SpanKind.BACKWARD, 15 * MS + i, 15 * MS + 2 * i + 1)
    run = builder.build()
    spans = spans_between(run, rank=0, start_ns=10 * MS, end_ns=20 * MS)
    figure = units_figure(step_ledger(run, rank=0, step=0), spans)
    assert figure["layout"]["meta"] == {"spans_left_out": spans.num_rows - MAX_SPANS}
    assert len(trace(figure, "backward")["x"]) == MAX_SPANS - 2


# -- ranks


def test_peaks_figure_has_one_bar_per_rank_on_the_given_scale():
    run = RunBuilder().alloc(at=0, size=MIB).rank(1).alloc(at=0, size=2 * MIB).build()
    figure = valid(peaks_figure([peak(run, rank=0), peak(run, rank=1)], max_bytes=4 * MIB))
    assert trace(figure, "activations")["x"] == ["0", "1"]
    assert trace(figure, "activations")["y"].tolist() == [1.0, 2.0]
    assert figure["layout"]["yaxis"]["range"] == [0, 4 * 1.1]


def test_step_times_are_ms_per_step_and_rank():
    figure = valid(step_times_figure({0: [2 * MS, 3 * MS], 1: [4 * MS, 1 * MS]}, max_ns=10 * MS))
    assert figure["layout"]["yaxis"]["range"] == [0, 11.0]
    assert [(t["name"], t["y"]) for t in figure["data"]] == [("rank 0", [2.0, 3.0]), ("rank 1", [4.0, 1.0])]


# -- names that come from a run


def test_names_are_text_for_plotly():
    assert plot_text(HOSTILE) == "&lt;img src=x onerror=alert(1)&gt; &#36;x&#36; **b** %{x}"
    assert plot_text("a\nb") == "a b"
    assert short_text("a.b.c.d", max_chars=4) == "…c.d"


def test_long_module_paths_keep_their_numbers():
    names = [f"model.decoder.transformer_blocks.{i}.attention_and_mlp" for i in (3, 27)]
    assert [short_unit(n, max_chars=18) for n in names] == ["m.d.t.3.attention…", "m.d.t.27.attentio…"]
    assert short_unit("layers.3", max_chars=18) == "layers.3"


def test_hostile_names_reach_a_figure_only_as_text():
    run = small_step().unit(HOSTILE).span(2, SpanKind.FORWARD, 12 * MS, 13 * MS).build()
    spans = spans_between(run, rank=0, start_ns=10 * MS, end_ns=20 * MS)
    one = panel(run, title=HOSTILE)
    figures = [
        memory_figure([one, one]),
        units_figure(one.step, spans),
        composition_figure([PeakBar(title=HOSTILE, strategy="FSDP2", peak=peak(run, rank=0))]),
        peaks_figure([peak(run, rank=0)], max_bytes=MIB),
    ]
    for figure in map(valid, figures):
        text = repr(figure)
        assert "<img" not in text
        assert "$x$" not in text
        assert all("onerror" not in t["hovertemplate"] for t in figure["data"] if "hovertemplate" in t)


def test_the_legend_names_what_is_drawn():
    entries = re.findall(r"</span>([^<]+)</span>", legend_html(memory_figure([panel(small_step().build())])))
    assert entries == ["parameters", "activations"]


def test_scales_are_binary_and_ticks_are_whole():
    assert [byte_scale(n).name for n in (0, 1023, 1024, MIB, 1 << 30)] == ["B", "B", "KiB", "MiB", "GiB"]
    assert byte_scale(MIB).of(3 * MIB) == 3.0
    assert [whole_ticks(n)["dtick"] for n in (1, 8, 9, 100)] == [1, 1, 2, 13]
