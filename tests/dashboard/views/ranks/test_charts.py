from builder import RunBuilder
from dashboard.figures import MIB, MS, trace, valid

from fsdp_dashboard.views.ranks.charts import peaks_figure, step_times_figure
from fsdp_profile.analysis.memory.ledger import peak


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
