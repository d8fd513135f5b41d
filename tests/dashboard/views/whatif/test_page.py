"""The What-if page: bars of the planner's rows, the device's memory, links that show the same."""

import json
from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

from fsdp_dashboard.views.whatif import queries as data_whatif
from fsdp_dashboard.views.whatif.charts import PlanBar, whatif_figure
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.plan.calibrate import Target, measured_row, predict
from fsdp_profile.plan.formulas.strategies import Layout, World

GIB = 1 << 30
Opened = Callable[..., AppTest]


def spec(app: AppTest) -> dict:
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def titles(app: AppTest) -> list[str]:
    return [a["text"] for a in spec(app)["layout"]["annotations"] if "<b>" in a["text"]]


def bar(size: int, *, is_whole: bool = True) -> PlanBar:
    return PlanBar(title="fsdp x 8", by_category={Category.ACTIVATION: size, Category.PARAM: size},
                   is_whole=is_whole, remark="fits")  # fmt: skip


def test_a_bar_is_stacked_in_the_order_of_every_stack() -> None:
    drawn = whatif_figure([bar(2 * GIB), bar(4 * GIB, is_whole=False)], capacity_bytes=None)
    assert [(t["name"], list(t["x"])) for t in drawn["data"]] == [("parameters", [2, 4]), ("activations", [2, 4])]
    assert [a["text"] for a in drawn["layout"]["annotations"]] == [
        "<b>fsdp x 8 4.00 GiB</b> · fits",
        "<b>fsdp x 8 more than 8.00 GiB</b> · fits",
    ]
    assert drawn["layout"]["shapes"] == []


def test_the_device_is_a_line_unless_it_is_far_away() -> None:
    near = whatif_figure([bar(2 * GIB)], capacity_bytes=10 * GIB, capacity_title="X")["layout"]
    assert [(line["x0"], line["x1"]) for line in near["shapes"]] == [(10.0, 10.0)]
    assert near["annotations"][-1]["text"] == "X 10.00 GiB"
    assert near["xaxis"]["range"][1] > 10
    assert whatif_figure([bar(GIB)], capacity_bytes=80 * GIB)["layout"]["shapes"] == []


def test_names_from_outside_are_text() -> None:
    hostile = PlanBar(title="<img src=x>", by_category={Category.INPUT: 1}, is_whole=True)
    (label,) = whatif_figure([hostile], capacity_bytes=None)["layout"]["annotations"]
    assert "<img" not in label["text"]


def test_formulas_of_a_well_known_size(opened: Opened, make_run: Callable[..., Run]) -> None:
    app = opened(make_run("one").path, page="whatif")
    assert titles(app)[0] == "<b>ddp x 8 207.96 GiB</b> · no (2.61x)"
    rows = app.dataframe[0].value
    assert list(rows["in GB"]) == ["208.00 GB", "71.50 GB", "48.75 GB", "26.00 GB", "26.00 GB", "52.00 GB"]
    assert "40 layers of width 5,120" in app.caption[0].value


def test_a_link_shows_the_same(opened: Opened, make_run: Callable[..., Run]) -> None:
    choice = {"params": "6.7B", "ranks": "32", "recipe": "fp32", "batch": "4", "seq": "4096", "device": "a100-80gb"}
    app = opened(make_run("one").path, page="whatif", strategy=["fsdp"], **choice)
    (row,) = data_whatif.formula_rows(
        data_whatif.Choice(
            shape="6.7B", world_size=32, recipe="fp32", layouts=(Layout.FSDP,), batch=4, seq=4096, checkpointed=False
        )
    )
    assert [t.split("</b>")[0] for t in titles(app)] == [f"<b>fsdp x 32 {bytes_text(row.peak_bytes)}"]


def test_three_ranks_have_no_hsdp(opened: Opened, make_run: Callable[..., Run]) -> None:
    app = opened(make_run("one").path, page="whatif", ranks="1", strategy=["hsdp"])
    assert app.info[0].value == "No strategy is chosen that these ranks can be divided into."


def test_a_measured_run_stands_beside_its_predictions(opened: Opened, write_runs: Callable[[Path], list[Run]],
                                                      tmp_path: Path) -> None:  # fmt: skip
    _, run = write_runs(tmp_path)
    app = opened(tmp_path, page="whatif", run=["fsdp2"], whatif="fsdp2", ranks="8", batch_percent="200", device="none")
    (expected,) = predict(run, [Target(layout=Layout.FSDP, world=World(size=8), batch_ratio=2.0)])
    found = titles(app)
    assert found[0] == f"<b>fsdp x 2 {bytes_text(measured_row(run).peak_bytes)}</b> · measured"
    assert f"<b>fsdp x 8 {bytes_text(expected.peak_bytes)}</b>" in found
    assert list(app.dataframe[0].value["basis"]) == ["measured", *["calibrated"] * 5]


def test_without_a_run_there_are_formulas(opened: Opened, tmp_path: Path) -> None:
    app = opened(tmp_path, page="whatif")
    assert titles(app)[0].startswith("<b>ddp x 8 ")


def test_a_damaged_run_is_one_message(opened: Opened, make_run: Callable[..., Run]) -> None:
    run = make_run("broken")
    for path in run.path.glob("rank_*/allocations.parquet"):
        path.write_bytes(b"not parquet")
    app = opened(run.path, page="whatif", run=["broken"], whatif="broken")
    (error,) = app.error
    assert error.value.startswith("Run `broken` cannot be shown: ")


def test_a_hostile_name_stays_text(opened: Opened, make_run: Callable[..., Run]) -> None:
    name = "<img src=x onerror=alert(1)> $x$ **b**"
    run = make_run(name, layer=name + "{}")
    app = opened(run.path.parent, page="whatif", run=[name], whatif=name, device="none")
    assert "onerror" not in json.dumps(spec(app)["layout"]["annotations"])
    assert [block.value for block in (*app.markdown, *app.caption, *app.error) if "onerror" in block.value] == []
