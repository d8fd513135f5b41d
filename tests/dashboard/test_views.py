"""Every page, run by streamlit's own test harness; numbers on screen are those of the analysis."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builder import RunBuilder

import fsdp_dashboard
from fsdp_dashboard import launch
from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.ledger_canvas.wire import unpacked
from fsdp_dashboard.text import code
from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.core import layout
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.tables import numbers

APP = Path(fsdp_dashboard.__file__).with_name("app.py")
PAGES = ("overview", "compare", "memory", "source", "units", "collectives", "ranks", "traces", "share")
OF_ONE_RUN = ("source", "units", "collectives", "traces", "share")
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"
MIB = 1 << 20


def said(app):
    return "\n".join(block.value for block in app.markdown)


def figure(app, number=0):
    return json.loads(app.get("plotly_chart")[number].proto.spec)


def trace(drawn, name):
    return next(t for t in drawn["data"] if t["name"] == name)


def table(app, number=0):
    return app.dataframe[number].value


# -- one run


def test_overview_of_one_run_says_where_the_memory_went(opened, make_run):
    run = make_run("alone")
    worst = memory.peak(run, rank=1)
    app = opened(run.path)
    first, share = next(iter(worst.by_category.items()))
    sentence = said(app)
    peak = f"Peak **{bytes_text(worst.allocated_bytes)}** allocated on rank 1, in **backward** of step 1"
    assert peak in sentence
    assert f"mostly {first.label} ({ratio_text(share / worst.allocated_bytes)})" in sentence
    assert app.metric[0].value == bytes_text(worst.allocated_bytes)
    shown = dict(zip(table(app)["category"], table(app)["bytes (MiB)"], strict=True))
    sizes = {c.label: size for c, size in worst.by_category.items()} | {"total": worst.allocated_bytes}
    assert shown == {label: round(size / MIB, 3) for label, size in ({"unknown": 0} | sizes).items()}


def test_what_was_not_recorded_is_said_with_its_reason_and_never_zero(opened, make_run):
    app = opened(make_run("alone", not_recorded={"utilization_ratio": "no NVIDIA driver"}).path)
    reserved = app.metric[1]
    assert (reserved.value, reserved.help) == ("not recorded", "`the CPU allocator has no reserved pool`")
    assert "- `reserved_peak_bytes`: `the CPU allocator has no reserved pool`" in said(app)
    assert "- `utilization_ratio`: `no NVIDIA driver`" in said(app)


def test_a_run_without_allocator_events_has_no_peak(opened, tmp_path):
    run = RunBuilder("bare", path=tmp_path / "bare").rank(0).build()
    app = opened(run.path)
    assert "`bare`: The peak is **not recorded**: no allocator events of a training step." in said(app)
    assert not app.metric
    for page in ("memory", "units"):
        assert "no allocator events of a training step" in opened(run.path, page=page).error[0].value
    assert "**not recorded**" in opened(run.path, page="ranks").info[0].value


def test_a_rank_that_did_not_come_to_its_end_is_named(opened, make_run):
    killed = RankRecord(rank=1, ending=Ending.SIGNAL, exit_code=-9, message="SIGKILL")
    app = opened(
        make_run(
            "alone", complete=False, world_size=3, ranks=[RankRecord(rank=0, ending=Ending.COMPLETED), killed]
        ).path
    )
    assert app.warning[0].value == "Rank 1 was killed by a signal, exit code -9: `SIGKILL`"
    assert app.warning[1].value == "1 of 3 ranks left no record."


# -- two runs


def test_overview_of_two_runs_says_what_sharding_saves(opened, make_run):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2")]
    found = compare(runs)
    ddp, fsdp = (c.peak.allocated_bytes for c in found.runs)
    app = opened(runs[0].path.parent)
    assert said(app).startswith(
        f"FSDP2 needs **{bytes_text(fsdp)}** at its peak where DDP needs **{bytes_text(ddp)}**: "
        f"**{ratio_text((ddp - fsdp) / ddp)}** less ({bytes_text(ddp - fsdp)} saved per rank)."
    )
    rows = table(app).set_index("category")
    assert list(rows.columns) == ["DDP (MiB)", "FSDP2 (MiB)", "Δ FSDP2 (MiB)"]
    assert list(rows.loc["total"]) == [round(size / MIB, 3) for size in (ddp, fsdp, fsdp - ddp)]
    for category, delta in found.runs[1].delta_by_category.items():
        assert rows.loc[category.label, "Δ FSDP2 (MiB)"] == round(delta / MIB, 3)
    assert not app.warning


def test_a_run_that_needs_more_than_the_baseline_is_said_to(opened, tmp_path):
    ddp = RunBuilder("d", strategy=Strategy.DDP, path=tmp_path / "d").alloc(at=0, size=4 * MIB).build()
    fsdp = RunBuilder("f", path=tmp_path / "f").alloc(at=0, size=5 * MIB).build()
    assert "**25.0 %** more, not less (1.00 MiB more per rank)." in said(opened(ddp.path, fsdp.path))


def test_runs_that_differ_in_more_than_sharding_are_told_apart(opened, make_run):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2", versions={"torch": "2.12.0"})]
    warning = opened(*(r.path for r in runs)).warning[0].value
    assert "`torch: 2.12.0 in fsdp2, 2.13.0 in ddp`" in warning


# -- memory


def test_memory_opens_on_the_step_of_each_runs_peak_on_one_scale(opened, make_run, ledger):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2")]
    app = opened(runs[0].path.parent, page="memory")
    drawn = ledger(app)
    for run, number in zip(runs, (0, 1), strict=True):
        peak = memory.peak(run, rank=1)
        mark = drawn["panels"][number]["peak"]
        assert (mark["bytes"], mark["text"]) == (peak.allocated_bytes, f"peak {bytes_text(peak.allocated_bytes)}")
        start = numbers(run.table("steps", rank=1), "start_ns")[peak.step + 1]
        assert mark["t"] == peak.t_ns - start
        blocks = memory.blocks_at(run, rank=1, event=peak.event)
        sizes = table(app, number).iloc[:, 0]
        unit_bytes = {"bytes (MiB)": MIB, "bytes (KiB)": 1024}[sizes.name]
        assert list(sizes) == [round(s / unit_bytes, 3) for s in numbers(blocks, "size_bytes")[: len(sizes)]]
    assert drawn["axis_bytes"] == HEADROOM * drawn["highest_bytes"]
    assert drawn["highest_bytes"] == max(memory.peak(run, rank=1).allocated_bytes for run in runs)


def test_memory_shows_the_chosen_rank_and_step(opened, make_run, ledger):
    run = make_run("fsdp2")
    app = opened(run.path, page="memory")
    app.selectbox(key="rank").select("0").run()
    app.selectbox(key="step").select("0").run()
    peak = memory.peak(run, rank=0, step=0)
    assert ledger(app)["panels"][0]["peak"]["bytes"] == peak.allocated_bytes


def test_a_link_opens_the_same_view(opened, make_run, ledger):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2")]
    app = opened(runs[0].path.parent, page="memory", run=["fsdp2"], rank="0", step="2")
    assert app.multiselect[0].value == ["fsdp2"]
    peak = memory.peak(runs[1], rank=0, step=2)
    assert ledger(app)["panels"][0]["peak"]["bytes"] == peak.allocated_bytes


def test_all_steps_show_the_whole_recording_and_the_peak_of_each(opened, make_run, ledger):
    run = make_run("fsdp2")
    app = opened(run.path, page="memory", step="all")
    peaks = memory.peak_of_steps(run, rank=1)
    assert app.selectbox(key="step").value == "all"
    [panel] = ledger(app)["panels"]
    drawn = unpacked(panel["peaks"])
    assert drawn["step"].tolist() == [0, 1, 2]
    assert drawn["total"].tolist() == [p.allocated_bytes for p in peaks]
    assert unpacked(panel["packed"])["total"].tolist() == memory.timeline(run, rank=1).allocated_bytes.tolist()


def test_a_window_in_the_link_is_in_view_and_one_that_makes_no_sense_is_not(opened, make_run, ledger):
    run = make_run("fsdp2")
    assert ledger(opened(run.path, page="memory", window="5000000:9000000"))["windows"] == [[5_000_000, 9_000_000]]
    for text in ("9:5", "-1:5", "x", "1:", "1:2:3", ":", "9" * 50 + ":1"):
        app = opened(run.path, page="memory", window=text)
        assert ledger(app)["windows"] == [None]
        assert "window" not in app.query_params


def test_a_step_that_was_clicked_is_opened(opened, make_run, ledger):
    run = make_run("fsdp2")
    app = opened(run.path, page="memory", step="all")
    app.session_state["open step"] = "2"
    app.run()
    assert app.selectbox(key="step").value == "2"
    assert ledger(app)["x_title"] == "ms in step 2"


def values(array):
    """Numbers of a trace: plotly sends arrays as base64."""
    if isinstance(array, list):
        return array
    import base64

    import numpy as np

    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).tolist()


# -- ranks


def test_ranks_show_peaks_step_times_and_endings(opened, make_run):
    run = make_run("fsdp2")
    app = opened(run.path, page="ranks")
    rows = table(app)
    for row, rank in enumerate(rank_summaries(run)):
        shown = rows.iloc[row]
        assert shown["rank"] == rank.rank
        assert shown["peak (MiB)"] == pytest.approx(rank.peak.allocated_bytes / MIB, abs=5e-4)
        assert shown["median step (ms)"] == rank.median_step_ns / 1e6
        assert shown["ended"] == "completed"
    assert rows["reserved peak (MiB)"].isna().all()
    assert values(trace(figure(app, 1), "rank 1")["y"]) == [40.0, 40.0, 40.0]


# -- nothing, missing, damaged


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


# -- names that come from a run


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


# -- what it costs


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
