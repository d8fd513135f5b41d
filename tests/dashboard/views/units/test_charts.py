from builder import small_step
from dashboard.figures import MIB, MS, trace, valid

from fsdp_dashboard.views.units.charts import MAX_SPANS, units_figure
from fsdp_profile.analysis.memory.step_ledger import step_ledger
from fsdp_profile.analysis.spans.recorded import spans_between
from fsdp_profile.core.schema import SpanKind


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
