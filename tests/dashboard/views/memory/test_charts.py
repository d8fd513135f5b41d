import numpy as np
from builder import RunBuilder, small_step
from dashboard.figures import MIB, MS, panel, trace, valid

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.views.memory.charts import MemoryPanel, memory_figure
from fsdp_profile.analysis.memory.downsampling import MAX_ROWS
from fsdp_profile.analysis.memory.step_ledger import step_ledger
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase


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
