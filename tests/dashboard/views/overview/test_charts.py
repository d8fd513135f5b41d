import pytest
from builder import RunBuilder
from dashboard.figures import MIB, trace, valid

from fsdp_dashboard.views.overview.charts import PeakBar, composition_figure
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy


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
