from builder import small_step
from dashboard.figures import HOSTILE, MIB, MS, panel, valid

from fsdp_dashboard.charts.labels import byte_scale, plot_text, short_text, short_unit, whole_ticks
from fsdp_dashboard.views.memory.charts import memory_figure
from fsdp_dashboard.views.overview.charts import PeakBar, composition_figure
from fsdp_dashboard.views.ranks.charts import peaks_figure
from fsdp_dashboard.views.units.charts import units_figure
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.analysis.spans.recorded import spans_between
from fsdp_profile.core.schema import SpanKind


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


def test_scales_are_binary_and_ticks_are_whole():
    assert [byte_scale(n).name for n in (0, 1023, 1024, MIB, 1 << 30)] == ["B", "B", "KiB", "MiB", "GiB"]
    assert byte_scale(MIB).of(3 * MIB) == 3.0
    assert [whole_ticks(n)["dtick"] for n in (1, 8, 9, 100)] == [1, 1, 2, 13]
