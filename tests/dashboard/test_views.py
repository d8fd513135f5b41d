"""Every page, run by streamlit's own test harness; numbers on screen are those of the analysis."""

import subprocess
import sys
from pathlib import Path

import pytest
from dashboard.screen import said

import fsdp_dashboard
from fsdp_dashboard import launch
from fsdp_dashboard.text import code
from fsdp_profile.core import layout
from fsdp_profile.core.schema import Strategy

APP = Path(fsdp_dashboard.__file__).with_name("app.py")
PAGES = ("overview", "compare", "memory", "source", "units", "collectives", "ranks", "traces", "share")
OF_ONE_RUN = ("source", "units", "collectives", "traces", "share")
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


def test_a_missing_folder_is_one_message(opened, tmp_path, make_run):
    run = make_run("fsdp2")
    app = opened(tmp_path / "gone", run.path)
    assert [w.value for w in app.sidebar.warning] == [code(f"{tmp_path / 'gone'}: no such file or folder")]
    assert "allocated on rank" in said(app)


def test_a_link_to_a_run_that_is_gone_says_so(opened, make_run):
    app = opened(make_run("fsdp2").path, run=["gone"])
    assert "`gone`" in app.warning[0].value
    assert "allocated on rank" in said(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_damaged_run_is_one_message_and_the_others_still_work(opened, make_run, page):
    good, bad = make_run("good"), make_run("bad", Strategy.DDP)
    layout.table_path(bad.path, 1, "memory_samples").write_bytes(b"PAR1 not parquet")
    app = opened(good.path, bad.path, page=page, **({"units_run": "bad"} if page in OF_ONE_RUN else {}))
    assert len(app.error) == 1
    assert app.error[0].value.startswith("Run `bad` cannot be shown: ")
    assert "record the run again" in app.error[0].value
    if page not in (*OF_ONE_RUN, "compare"):  # a comparison needs both
        assert app.get("bidi_component" if page == "memory" else "plotly_chart")


def test_files_that_contradict_each_other_are_one_message(opened, make_run):
    run = make_run("odd")
    table_of = run.table("memory_samples", rank=0)
    from fsdp_profile.ingest.tables import write_table

    write_table(layout.table_path(run.path, 0, "memory_samples"), table_of.slice(0, 3))
    app = opened(run.path)
    assert "`odd: its files contradict each other (IndexError:" in app.error[0].value


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": "9.0", "name": "x", "created": ""}', b"\xff\xfe"])
def test_a_damaged_manifest_is_one_message(opened, tmp_path, make_run, content):
    (tmp_path / "runs" / "odd").mkdir(parents=True)
    (tmp_path / "runs" / "odd" / layout.MANIFEST).write_bytes(content)
    make_run("good")
    app = opened(tmp_path / "runs", run=["odd", "good"])
    assert [e.value.partition(" cannot")[0] for e in app.error] == ["Run `odd`"]
    assert "allocated on rank" in said(app)
    assert opened(tmp_path / "runs").multiselect[0].value == ["good"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_stay_text(opened, make_run, page, alone):
    fields = (HOSTILE, "reserved_peak_bytes", "collectives", "exposed_ns")
    reasons = dict.fromkeys(fields, HOSTILE)
    run = make_run(HOSTILE, layer=HOSTILE + "{}", warnings=[HOSTILE], not_recorded=reasons)
    other = make_run("ddp", Strategy.DDP, layer=HOSTILE + "{}")
    chosen = [run.path.name] if alone else [run.path.name, other.path.name]
    app = opened(run.path.parent, page=page, run=chosen)
    shown = [*app.markdown, *app.error, *app.warning, *app.info, *app.caption]
    texts = [*(block.value for block in shown), *(tile.help or "" for tile in app.metric)]
    named = [text for text in texts if "onerror" in text]
    for text in named:
        outside = text.replace(code(HOSTILE), "").replace(code(f"{HOSTILE}0"), "")
        assert "onerror" not in outside
    assert named or alone or page in ("collectives", "share")
    assert not any(block.proto.allow_html for block in app.markdown)
    assert not any("onerror" in block.proto.body for block in app.get("html"))
    for chart in app.get("plotly_chart"):
        assert "<img" not in chart.proto.spec


def test_a_code_span_holds_any_name():
    assert code("a`b``c") == "``` a`b``c ```"
    assert code("a\nb\x1b[0m") == "`a b [0m`"
    assert code("  ") == "`(no name)`"


def test_the_dashboard_never_imports_torch(make_run):
    run = make_run("fsdp2")
    script = f"""
import sys
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
app = AppTest.from_file({str(APP)!r}, default_timeout=60).run()
for page in {PAGES!r}:
    app._page_hash = calc_hash(page)
    app.run()
    assert not app.exception
print(sorted(name for name in ("torch", "fsdp_profile.analysis.run") if name in sys.modules))
"""
    environment = launch.environment([run.path])
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['fsdp_profile.analysis.run']", done.stderr
