"""The Runs page: a row per run, filters, order, tags; nothing of a run is read that was read before."""

import pytest
from builder import RunBuilder

from fsdp_dashboard.views.runs import queries as data_runs
from fsdp_profile.analysis import run_index
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.ingest.tags import read_tags, write_tags

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    """ddp 4 MiB, fsdp2 1 MiB and a quarter of it UNKNOWN, hsdp 2 MiB not complete, bare without memory."""
    runs = tmp_path / "runs"
    for name, strategy, parts, more in (
        ("ddp", Strategy.DDP, (4, 0), {}),
        ("fsdp2", Strategy.FSDP2, (0.75, 0.25), {}),
        ("hsdp", Strategy.HSDP, (2, 0), {"complete": False, "device_name": "NVIDIA H100"}),
    ):
        run = RunBuilder(name, strategy=strategy, path=runs / name).set(**more)
        run.alloc(at=1, size=int(parts[0] * MIB))
        if parts[1]:
            run.alloc(at=2, size=int(parts[1] * MIB), category=Category.UNKNOWN)
        run.build()
    RunBuilder("bare", path=runs / "bare").rank(0).build()
    write_tags(runs / "fsdp2", ("night", "best"))
    write_tags(runs / "hsdp", ("night",))
    return runs


def rows(app):
    return app.dataframe[0].value.set_index("run")


def test_every_run_has_a_row_with_what_its_summaries_say(opened, folder):
    found = rows(opened(folder, page="runs", sort="name"))
    assert list(found.index) == ["bare", "ddp", "fsdp2", "hsdp"]
    assert found["peak (MiB)"].fillna(-1).tolist() == [-1, 4, 1, 2]
    assert found["saved (%)"].fillna(-1).tolist() == [-1, -1, 75, -1]
    assert found["unknown (%)"].fillna(-1).tolist() == [-1, 0, 25, 0]
    assert found["state"].tolist() == ["complete, no memory", "complete", "complete", "not complete"]
    assert list(map(list, found["tags"])) == [[], [], ["best", "night"], ["night"]]
    assert found["compared with"].fillna("").tolist() == ["", "", "ddp", ""]
    assert found.loc["fsdp2", "started"] == "2026-01-02 03:04"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"words": "h100 hsdp"}, ["hsdp"]),
        ({"words": "BEST"}, ["fsdp2"]),
        ({"is": ["DDP", "HSDP"], "sort": "name"}, ["ddp", "hsdp"]),
        ({"tag": ["night"], "sort": "lowest peak"}, ["fsdp2", "hsdp"]),
        ({"tag": ["night", "best"]}, ["fsdp2"]),
        ({"sort": "highest peak"}, ["ddp", "hsdp", "fsdp2", "bare"]),
        ({"sort": "most unknown", "is": ["FSDP2"]}, ["fsdp2", "bare"]),
        ({"sort": "most saved", "is": ["FSDP2"]}, ["fsdp2", "bare"]),
    ],
)
def test_filters_and_order_are_in_the_link(opened, folder, query, expected):
    assert list(rows(opened(folder, page="runs", **query)).index) == expected


def test_filters_that_leave_nothing_say_so(opened, folder):
    app = opened(folder, page="runs", words="nothing like it")
    assert app.info[0].value == "No run fits these filters. Clear one of them above."
    assert not app.dataframe


def test_tags_are_written_beside_the_shown_run(opened, folder):
    app = opened(folder, page="runs", run=["ddp"])
    field = next(f for f in app.text_input if f.label == "Tags of this run")
    field.input("baseline, , night")
    app.button[-1].click().run()
    assert read_tags(folder / "ddp") == ("baseline", "night")
    assert list(rows(app).loc["ddp", "tags"]) == ["baseline", "night"]


def test_tags_that_are_too_long_are_told_not_dropped(opened, folder):
    app = opened(folder, page="runs", run=["ddp"])
    next(f for f in app.text_input if f.label == "Tags of this run").input("a, " * 200 + "b" * 41)
    app.button[-1].click().run()
    assert [e.value for e in app.error] == [f"`the tag '{'b' * 40}...' is longer than 40 characters`"]
    assert read_tags(folder / "ddp") == ()


def test_what_takes_no_tags_says_so_in_one_line(opened, folder):
    (folder / "one.fsdpz").write_bytes(bundle_bytes(run_index.load_run(folder / "ddp")))
    app = opened(folder, page="runs", run=["one.fsdpz"])
    next(f for f in app.text_input if f.label == "Tags of this run").input("a")
    app.button[-1].click().run()
    assert [e.value for e in app.error] == [
        "`one.fsdpz: a bundle takes no tags; they are kept beside a run's own folder`"
    ]


def test_damaged_runs_and_tags_are_one_line_and_the_others_stay(opened, folder):
    (folder / "ddp" / layout.MANIFEST).write_bytes(b"{")
    (folder / "hsdp" / layout.TAGS).write_bytes(b"{")
    app = opened(folder, page="runs", run=["hsdp"], sort="name")
    found = rows(app)
    assert found.loc["ddp", "state"].startswith("cannot be read: ")
    assert found.loc["fsdp2", "peak (MiB)"] == 1
    said = [warning.value for warning in app.warning]
    assert [("manifest.json" in line, "tags.json" in line) for line in said] == [(True, False), (False, True)]


def test_what_takes_too_long_is_read_when_asked_for(opened, folder, monkeypatch):
    monkeypatch.setattr(data_runs, "BUDGET_S", -1.0)
    monkeypatch.setattr(run_index, "read_cached", lambda *_, **__: None)
    app = opened(folder, page="runs", sort="name")
    assert set(rows(app)["state"]) == {"not read yet"}
    app.button(key="read_all").click().run()
    assert rows(app)["peak (MiB)"].fillna(-1).tolist() == [-1, 4, 1, 2]


def test_an_unchanged_run_is_read_once(opened, folder, monkeypatch):
    opened(folder, page="runs")
    monkeypatch.setattr(run_index, "read_manifest", None)
    assert len(rows(opened(folder, page="runs"))) == 4
