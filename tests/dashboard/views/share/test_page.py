"""The share page: what a file will hold is shown before it is made, and bundles open like runs."""

import io
import zipfile

import pytest
from builder import RunBuilder

from fsdp_dashboard import data
from fsdp_dashboard.views.share import queries as data_share
from fsdp_dashboard.views.share.queries import Redaction
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import SpanKind
from fsdp_profile.export.bundle import bundle_bytes

SECRET = "s3cr3t"
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


@pytest.fixture
def private_run(tmp_path):
    run = RunBuilder("private", path=tmp_path / "private").set(
        script_args=[SECRET], ranks=[RankRecord(rank=0, host=SECRET)]
    )
    return run.unit("layers.0").span(0, SpanKind.FORWARD, 1, 9).alloc(at=1, free=9, size=1 << 20, unit=0).build()


def said(app):
    return "\n".join(block.value for block in (*app.markdown, *app.warning, *app.caption, *app.code))


def test_what_is_taken_out_is_shown_before_anything_is_shared(opened, private_run):
    app = opened(private_run.path, page="share")
    assert app.toggle(key="redact").value is True
    rows = {row["kind"]: row for row in app.dataframe[0].value.to_dict("records")}
    assert rows["hosts"]["example"] == SECRET and rows["hosts"]["becomes"].startswith("host_")
    assert rows["script arguments"]["becomes"] == "(nothing)"
    assert f"fsdp-profile export {private_run.path} -o run.fsdpz --redact" in said(app)
    app.toggle(key="hide_modules").set_value(True).run()
    assert "module names" in {row["kind"] for row in app.dataframe[0].value.to_dict("records")}
    app.text_input(key="pseudonym_key").set_value("k").run()
    assert "--redact --hide-modules KEY" in said(app)


def test_without_redaction_the_page_says_what_the_file_holds(opened, private_run):
    app = opened(private_run.path, page="share")
    app.toggle(key="redact").set_value(False).run()
    assert not app.dataframe
    assert "host names, paths, the command line" in said(app)
    assert f"fsdp-profile export {private_run.path} -o run.fsdpz" in said(app) and "--redact" not in said(app)


def test_of_a_long_run_the_file_is_made_when_it_is_asked_for(opened, private_run, monkeypatch):
    monkeypatch.setattr(data_share, "tables_bytes", lambda refs: 192 << 20 if len(refs) == 1 else 0)
    app = opened(private_run.path, page="share")
    assert "The tables take 192.00 MiB: making the file takes a while." in app.info[0].value
    assert not app.dataframe and not app.get("download_button")
    app.toggle(key="make").set_value(True).run()
    assert app.dataframe and app.get("download_button")


def test_the_size_of_runs_and_bundles_is_what_they_take_on_the_disk(private_run, tmp_path):
    bundle = tmp_path / "one.fsdpz"
    bundle.write_bytes(bundle_bytes(private_run))
    refs = [data.RunRef(label="x", path=path, stamp=(0, 0)) for path in (private_run.path, bundle)]
    tables = sum(path.stat().st_size for path in private_run.path.glob("rank_*/*.parquet"))
    assert data_share.tables_bytes(refs) == tables + bundle.stat().st_size > tables


@pytest.mark.parametrize("ending", data_share.FORMATS)
def test_every_file_can_be_made(opened, private_run, ending):
    app = opened(private_run.path, page="share")
    app.selectbox(key="format").set_value(ending).run()
    assert not app.exception and not app.error
    ref = data.RunRef(label="private", path=private_run.path, stamp=(0, 0))
    plain, clean = data_share.file_of([ref], ending, None), data_share.file_of([ref], ending, Redaction())
    assert plain != clean or ending in (".csv", ".svg", ".md")
    assert SECRET.encode() not in clean
    if ending == ".fsdpz":
        assert SECRET.encode() in zipfile.ZipFile(io.BytesIO(plain)).read("manifest.json")


def test_a_page_of_two_runs_compares_them(opened, private_run):
    other = RunBuilder("other", path=private_run.path.parent / "other").alloc(at=1, size=4096).build()
    app = opened(private_run.path, other.path, page="share")
    app.selectbox(key="format").set_value(".html").run()
    assert not app.exception and not app.error
    assert f"fsdp-profile export {private_run.path} {other.path} -o run.html --redact" in said(app)
    refs = [data.RunRef(label=r.name, path=r.path, stamp=(1, 1)) for r in (private_run, other)]
    assert b"What changed" in data_share.file_of(refs, ".html", Redaction())


def test_a_bundle_is_a_run_on_every_page(opened, private_run, tmp_path):
    path = tmp_path / "shared.fsdpz"
    path.write_bytes(bundle_bytes(load_run(private_run.path)))
    for page in ("overview", "memory", "source", "units", "collectives", "ranks", "traces", "share"):
        app = opened(path, page=page)
        assert not app.exception and not app.error, page
    assert "1.00 MiB" in "\n".join(metric.value for metric in opened(path, page="overview").metric)


def test_a_hostile_bundle_is_one_message(opened, tmp_path):
    path = tmp_path / "bad.fsdpz"
    path.write_bytes(b"PK")
    app = opened(path, page="overview")
    assert not app.exception
    assert "not a bundle that can be opened" in "\n".join(e.value for e in app.error)


def test_names_of_a_run_are_text(opened, tmp_path):
    path = tmp_path / "run"
    run = RunBuilder(HOSTILE, path=path).set(script=HOSTILE).unit(HOSTILE).alloc(at=1, size=8, unit=0).build()
    app = opened(run.path, page="share")
    assert not app.exception
    assert HOSTILE not in "\n".join(block.value for block in app.markdown)
    assert HOSTILE in [row["example"] for row in app.dataframe[0].value.to_dict("records")]
