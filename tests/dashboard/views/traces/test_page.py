"""The traces page: what the run holds, ours, and HTA only when asked for and where it can answer."""

import importlib.util

import pytest
from builder import RunBuilder

from fsdp_dashboard.views.traces import queries as data_traces
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import CollectiveKind

MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


@pytest.fixture
def device_run(tmp_path):
    """A run of two GPUs; rank 0 kept a trace of 2048 bytes."""
    run = RunBuilder("gpu", path=tmp_path / "gpu").set(device_type="cuda")
    for rank in (0, 1):
        run.rank(rank).step(0, 0, 20 * MS).kernel(MS, 3 * MS).collective(CollectiveKind.ALL_REDUCE, 2 * MS, 6 * MS)
    run = run.build()
    layout.raw_dir(run.path, 0).mkdir()
    (layout.raw_dir(run.path, 0) / "kineto.json.gz").write_bytes(b"x" * 2048)
    return run


@pytest.fixture
def hta(monkeypatch):
    """hta(answer) installs an HTA that gives it; asked() says how often it was."""
    asked = []
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: True if name == "hta" else find_spec(name, *a))

    def install(answer):
        def tables(run):
            asked.append(run.path)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(data_traces.hta, "hta_tables", tables)
        return asked

    return install


def said(app):
    return "\n".join(block.value for block in app.markdown)


def test_the_traces_of_a_run_are_listed_with_their_size(opened, device_run):
    rows = opened(device_run.path, page="traces").dataframe[0].value
    assert rows.to_dict("records") == [
        {"rank": 0, "trace": "rank_00000/raw/kineto.json.gz", "where": "in the run", "size (KiB)": 2.0}
    ]


def test_traces_that_a_run_was_imported_from_are_named_but_not_kept(opened, tmp_path):
    told = [{"kind": "trace", "rank": 3, "file": HOSTILE}, {"kind": "snapshot", "rank": 3, "file": "s.pickle"}]
    run = RunBuilder("i", path=tmp_path / "i").set(device_type="cuda", extra={"imported": told}).rank(3).build()
    rows = opened(run.path, page="traces").dataframe[0].value
    assert rows.to_dict("records") == [
        {"rank": 3, "trace": HOSTILE, "where": "not in the run, which was imported from it"}
    ]


def test_ours_are_the_exposed_and_overlapped_times_of_each_rank(opened, device_run):
    rows = opened(device_run.path, page="traces").dataframe[1].value
    assert rows.to_dict("records") == [
        {"rank": rank, "collectives (ms)": 4.0, "exposed (ms)": 3.0, "overlapped (ms)": 1.0, "overlapped (%)": 25.0}
        for rank in (0, 1)
    ]


def test_a_cpu_run_is_told_that_hta_has_nothing_to_say(opened, make_run):
    app = opened(make_run("cpu").path, page="traces")
    assert [info.value for info in app.info] == [
        "Kineto traces of `cpu`: **not recorded**, `no trace was written when the run was recorded`",
        "HTA reads device streams, and this run was recorded on CPU: see the Collectives page for its exposed time, "
        "or record it on a GPU.",
    ]
    assert not app.button


def test_without_the_extra_it_says_what_to_install(opened, device_run, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "hta" else find_spec(name, *a))
    app = opened(device_run.path, page="traces")
    assert app.info[-1].value == (
        "HTA is not installed: run `pip install 'fsdp-profile[hta]'`, then start the dashboard again."
    )
    assert not app.button


def test_hta_runs_when_asked_once_and_its_own_words_are_shown(opened, device_run, hta):
    good = HtaTable(name="idle time", columns=("rank", "idle"), rows=((0, 1.5), (1, "x")), error=None)
    bad = HtaTable(name="overlap", columns=(), rows=(), error=f"KeyError: {HOSTILE}")
    asked = hta([good, bad])
    app = opened(device_run.path, page="traces")
    assert asked == []
    app.button(key="run_hta").click().run()
    assert not app.exception
    assert "**HTA: `idle time`**" in said(app)
    assert app.dataframe[2].value.to_dict("records") == [{"rank": 0, "idle": "1.5"}, {"rank": 1, "idle": "x"}]
    assert app.warning[0].value == f"HTA returned no table; its message: `` KeyError: {HOSTILE} ``"
    app.run()
    assert "**HTA: `idle time`**" in said(app)
    assert len(asked) == 1


def test_a_run_that_hta_cannot_read_is_one_message(opened, device_run, hta):
    hta(InputError("no trace with device activity for HTA"))
    app = opened(device_run.path, page="traces")
    app.button(key="run_hta").click().run()
    assert not app.exception
    assert app.error[0].value == "Run `gpu` cannot be shown: `no trace with device activity for HTA`"
    assert len(app.dataframe) == 2


def test_the_way_to_perfetto_is_a_link_to_the_file(opened, make_run):
    link = opened(make_run("fsdp2").path, page="traces").get("page_link")[0].proto
    assert (link.label, link.page) == ("As a file for Perfetto", "share")
    assert link.query_string == "run=fsdp2&format=Trace+for+Perfetto+and+chrome%3A%2F%2Ftracing"
