from builder import RunBuilder
from dashboard.screen import MIB, said, table

from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Ending, Strategy


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
