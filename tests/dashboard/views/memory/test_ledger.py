from dashboard.screen import MIB, table

from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.ledger_canvas.wire import unpacked
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Strategy
from fsdp_profile.ingest.tables import numbers


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
