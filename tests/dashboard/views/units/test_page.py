"""The units page: what each unit did, what was gathered at once and by whom it was prefetched."""

import json

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import unit_text
from fsdp_profile.core.layout import packaged
from fsdp_profile.core.schema import Prefetch, SpanKind, Strategy

KIB = 1 << 10
MS = 1_000_000


def said(app):
    return "\n".join(block.value for block in app.markdown)


def figure(app, number=0):
    return json.loads(app.get("plotly_chart")[number].proto.spec)


def table(app, number=0):
    return app.dataframe[number].value


def test_units_show_the_sharded_run_first_and_their_totals(opened, make_run):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2")]
    app = opened(*(r.path for r in runs), page="units")
    assert app.selectbox(key="units_run").value == "fsdp2"
    rows = table(app)
    for row, unit in enumerate(unit_summaries(runs[1], rank=1)):
        shown = rows.iloc[row]
        assert shown["unit"] == unit_text(unit.name)
        assert (shown["gathers"], shown["reshards"]) == (unit.num_gathers, unit.num_reshards)
        assert shown["gathered time (ms)"] == pytest.approx(unit.gathered_ns / 1e6, abs=5e-4)
        assert shown["exposed (ms)"] == pytest.approx(unit.exposed_ns / 1e6, abs=5e-4)
        assert shown["unsharded (KiB)"] == unit.unsharded_bytes / 1024
    assert {"gather", "forward", "backward", "reduce", "reshard", "unsharded"} <= {
        t["name"] for t in figure(app)["data"]
    }


def gathering(path, *, reshards=True):
    """Two units of 4 and 8 KiB; the second is gathered from 1 ms of the step on, 2 ms ahead of its forward."""
    run = RunBuilder(path.name, path=path).step(0, 10 * MS, 20 * MS).unit("").unit("a")
    run.alloc(at=11 * MS, free=16 * MS, size=8 * KIB, category=Category.UNSHARDED_PARAM)
    for unit, size, issue, use, end in ((0, 4 * KIB, 10, 10, 19), (1, 8 * KIB, 11, 13, 16)):
        ahead = {"prefetched": unit == 1, "prefetch": Prefetch.EXPLICIT if unit else ""}
        run.span(unit, SpanKind.ALL_GATHER, issue * MS, issue * MS + 1, size=size, **ahead)
        run.span(unit, SpanKind.FORWARD, use * MS, end * MS, prefetch="")
        if reshards:
            run.span(unit, SpanKind.UNSHARDED, issue * MS, end * MS, size=size, **ahead)
    return run


def test_units_say_what_was_gathered_at_once_and_by_whom_it_was_prefetched(opened, tmp_path):
    app = opened(gathering(tmp_path / "g").build().path, page="units")
    most, gathers = (frame.value for frame in app.dataframe[1:3])
    assert most.to_dict("records") == [
        {"phase": "forward", "units": 2, "bytes (KiB)": 12.0, "units ahead": 1, "bytes ahead (KiB)": 8.0,
         "held (KiB)": 8.0, "which units": "(root), a"}
    ]  # fmt: skip
    assert gathers.to_dict("records") == [
        {"unit": "(root)", "phase": "forward", "prefetch": "no", "issued (ms)": 0.0, "ahead (ms)": 0.0,
         "resharded (ms)": 9.0, "gathered (ms)": 9.0, "bytes (KiB)": 4.0},
        {"unit": "a", "phase": "forward", "prefetch": "explicit", "issued (ms)": 1.0, "ahead (ms)": 2.0,
         "resharded (ms)": 6.0, "gathered (ms)": 5.0, "bytes (KiB)": 8.0},
    ]  # fmt: skip
    assert "##### Gathers of step 0" in said(app)


def test_a_prefetch_of_unknown_origin_is_said_to_be_one(opened, tmp_path):
    app = opened(packaged("sample_runs") / "gpt-fsdp2-2ranks", page="units", step="2")
    prefetch = app.dataframe[2].value.set_index(["unit", "phase"])["prefetch"]
    assert prefetch["(root)", "forward"] == "no"
    assert prefetch["layers.3", "backward"] == "implicit"
    found = RunBuilder(path=tmp_path / "old").unit("a").alloc(at=1, size=8)  # before the column was there
    found.span(0, SpanKind.UNSHARDED, 2, 9, size=8, prefetched=True).span(0, SpanKind.RESHARD, 8, 9)
    found.span(0, SpanKind.ALL_GATHER, 2, 3, prefetched=True).span(0, SpanKind.FORWARD, 4, 8)
    app = opened(found.build().path, page="units")
    assert list(app.dataframe[2].value["prefetch"]) == ["yes, origin not recorded"]


@pytest.mark.parametrize(
    ("reshards", "complete", "why"),
    [
        (False, True, "the recording does not hold when units were resharded"),
        (True, False, "no complete step in which a unit was gathered"),
    ],
)
def test_what_was_gathered_at_once_is_not_recorded_for_a_reason(opened, tmp_path, reshards, complete, why):
    run = gathering(tmp_path / "g", reshards=reshards)
    if not complete:
        run = RunBuilder("h", path=tmp_path / "h").step(0, 0, 10 * MS, complete=False).unit("a")
        run.span(0, SpanKind.UNSHARDED, 1, 5, size=4).alloc(at=1, size=4)
    app = opened(run.build().path, page="units")
    assert f"**not recorded**, `{why}`" in app.info[-1].value
    assert ("Gathers of step 0" in said(app)) is reshards


def test_units_that_never_gather_are_not_asked_what_was_gathered(opened, make_run):
    app = opened(make_run("ddp", Strategy.DDP).path, page="units")
    assert "Gather" not in said(app)
    assert not app.info


def test_units_without_collectives_have_no_times(opened, tmp_path):
    builder = RunBuilder("f", path=tmp_path / "f").unit("a", sharded=1, unsharded=2)
    app = opened(builder.alloc(at=1, size=4).build().path, page="units")
    assert table(app)["all-gather (ms)"].isna().all()
    assert "no collectives were recorded in the training steps" in app.info[0].value


def test_a_run_without_units_says_so(opened, tmp_path):
    run = RunBuilder("n", strategy=Strategy.NONE, path=tmp_path / "n").alloc(at=1, size=4).build()
    assert "no sharded unit and no bucket was seen" in opened(run.path, page="units").info[0].value
