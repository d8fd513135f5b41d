"""The Compare page: two runs on one axis, what changed between their peaks, and what is missing says so."""

import json

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.compare.peaks import compare, waterfall_text
from fsdp_profile.analysis.memory.step_ledger import step_ledger
from fsdp_profile.analysis.time.alignment import aligned_by_phase
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, Strategy
from fsdp_profile.core.words import label_of

MS = 1_000_000


def figure(app, number=0):
    return json.loads(app.get("plotly_chart")[number].proto.spec)


def said(app):
    return "\n".join(block.value for block in app.markdown)


@pytest.fixture
def pair(make_run):
    return [make_run("ddp", Strategy.DDP), make_run("fsdp2")]


def test_the_peaks_are_joined_by_what_changed(opened, pair):
    app = opened(*(r.path for r in pair), page="compare")
    found = compare(pair)
    base, mine = found.runs
    bars = figure(app, 1)["data"][0]
    assert len(bars["x"]) == len(mine.waterfall) + 2
    ends = [start + (size if text[0] != "\N{MINUS SIGN}" else 0) for start, size, text in
            zip(bars["base"], bars["x"], bars["text"], strict=True)]  # fmt: skip
    mib = 1 << 20
    assert bars["x"][0] == pytest.approx(base.peak.allocated_bytes / mib)
    assert ends[-2] == pytest.approx(mine.peak.allocated_bytes / mib)
    assert bars["x"][-1] == pytest.approx(mine.peak.allocated_bytes / mib)
    assert f"`fsdp2`: {waterfall_text(mine)}." in said(app)


def test_the_panels_share_time_and_bytes(opened, pair):
    layout = figure(opened(*(r.path for r in pair), page="compare"))["layout"]
    assert layout["xaxis"]["range"] == layout["xaxis2"]["range"]
    assert layout["xaxis2"]["matches"] == "x"
    assert layout["yaxis"]["range"] == layout["yaxis2"]["range"]
    assert layout["xaxis2"]["title"]["text"] == "ms in step"


def test_phases_units_and_costs_are_those_of_the_comparison(opened, pair):
    app = opened(*(r.path for r in pair), page="compare")
    found = compare(pair)
    shown = {next(iter(frame.value.columns)): frame.value for frame in app.dataframe}
    assert shown["phase"]["phase"].tolist() == [label_of(Phase, row.name) for row in found.phases]
    assert shown["unit"]["unit"].tolist() == ["(root)", "layers.0", "layers.1", "layers.2", "layers.3"]
    assert list(shown["run"].columns)[:2] == ["run", "step (ms)"]
    assert shown["run"]["run"].tolist() == ["DDP", "FSDP2"]
    assert "**not recorded** in both runs" in said(app)


def test_one_run_is_not_compared(opened, pair):
    app = opened(pair[0].path, page="compare")
    assert [info.value for info in app.info] == [
        "Choose two runs or more in the sidebar; those without allocator events do not count."
    ]


def test_losses_of_both_runs_are_held_against_each_other(opened, tmp_path):
    runs = []
    for name, last in (("a", 2.0), ("b", 2.5)):
        run = RunBuilder(name, path=tmp_path / name).alloc(at=1, size=8)
        for step, loss in enumerate((3.0, last)):
            run.row("losses", step=step, micro_step=0, loss=loss)
        runs.append(run.build())
    app = opened(*(r.path for r in runs), page="compare")
    assert "**not equal to rounding**: they differ by up to 0.5 (2.5e-01 of the loss) in step 1." in said(app)
    shown = next(frame.value for frame in app.dataframe if "baseline's loss" in frame.value)
    assert shown["b"].tolist() == ["0", "5.0e-01"]


def step_of(path, *, backward, end):
    run = RunBuilder(path.name, path=path).step(0, 0, end)
    run.phase(Phase.FORWARD, 0, backward).phase(Phase.BACKWARD, backward, end)
    run.alloc(at=backward // 2, free=backward + (end - backward) // 2, size=4, category=Category.ACTIVATION)
    return step_ledger(run.build(), rank=0, step=0)


def test_a_step_is_stretched_phase_by_phase(tmp_path):
    short, long = step_of(tmp_path / "s", backward=10, end=20), step_of(tmp_path / "l", backward=60, end=100)
    moved = aligned_by_phase(short, onto=long)
    assert moved.ledger.t_ns.tolist() == [0, 30, 80]
    assert [(span.start_ns, span.end_ns) for span in moved.phases] == [(0, 60), (60, 100)]
    assert moved.ledger.allocated_bytes.tolist() == short.ledger.allocated_bytes.tolist()
    assert (moved.start_ns, moved.end_ns) == (0, 100)


def test_alignment_is_a_choice_with_a_link(opened, pair):
    app = opened(*(r.path for r in pair), page="compare", align="phase")
    drawn = figure(app)
    assert drawn["layout"]["xaxis2"]["title"]["text"] == "ms in the baseline's step, phases aligned"
    assert any(caption.value.startswith("Phases of the second run are stretched") for caption in app.caption)
