import pytest
from builder import RunBuilder
from commands.show.showing import shown
from render.terminal.samples import MIB, check_golden, ddp_run, fsdp2_run

from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import RankRecord, Receipt
from fsdp_profile.core.schema import SETUP_STEP, Ending, SpanKind


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("section", ["overview", "memory", "units", "collectives", "ranks", "findings"])
def test_the_page_is_as_reviewed(capsys, monkeypatch, tmp_path, section, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    run = fsdp2_run(tmp_path)
    text = shown(capsys, run.path, *([] if section == "overview" else [section]))
    assert max(map(len, text.splitlines())) <= columns
    check_golden(f"show_{section}_{columns}", text)


def test_piped_output_is_100_columns_wide_whatever_the_window(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("COLUMNS")
    text = shown(capsys, fsdp2_run(tmp_path).path)
    assert max(map(len, text.splitlines())) == 100  # the bar


def test_the_peak_is_the_worst_ranks_unless_a_rank_is_chosen(capsys, tmp_path):
    run = fsdp2_run(tmp_path)
    assert "Peak 31.00 MiB allocated on rank 1  backward of step 1, active unit layers.1" in shown(capsys, run.path)
    assert "Peak 30.00 MiB allocated on rank 0" in shown(capsys, run.path, "--rank", "0")
    assert "Peak 30.00 MiB allocated on rank 0" in shown(capsys, run.path, "memory", "--rank", "0")


def test_unknown_is_named_even_when_it_is_nothing(capsys, tmp_path):
    text = shown(capsys, ddp_run(tmp_path).path)
    assert "?  unknown                0 B    0.0 %" in text


def test_a_failed_run_names_the_ranks_and_why_in_red(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ended = [
        RankRecord(rank=0, ending=Ending.SIGNAL, exit_code=-15, message="SIGTERM"),
        RankRecord(rank=1, ending=Ending.EXCEPTION, exit_code=1, message="RuntimeError: out of memory"),
    ]
    run = RunBuilder(path=tmp_path / "run").set(complete=False, ranks=ended, world_size=3).alloc(at=0, size=4).build()
    text = shown(capsys, run.path)
    for line in (
        "NOT COMPLETE",
        "Rank 0 was killed by a signal, exit code -15: SIGTERM",
        "Rank 1 raised an uncaught exception, exit code 1: RuntimeError: ",
        "1 of 3 ranks left no record.",
    ):
        assert f"\x1b[1;31m{line}" in text


def test_no_colour_means_no_colour_codes_and_letters_in_the_bar(capsys, monkeypatch, tmp_path):
    run = RunBuilder(path=tmp_path / "run").alloc(at=0, size=3, category=Category.INPUT).alloc(at=1, size=1).build()
    monkeypatch.setenv("COLUMNS", "20")
    assert "I" * 15 + "A" * 5 in shown(capsys, run.path).splitlines()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(capsys, run.path)
    assert "I" * 15 + "A" * 5 in text.splitlines()
    assert "\x1b[3" not in text and "\x1b[4" not in text


def test_names_from_a_run_are_neither_markup_nor_control_codes(capsys, tmp_path):
    name = "[red]x[/red]\x1b[31m\x07\n:smile:"
    run = (
        RunBuilder(name, path=tmp_path / "run")
        .set(warnings=[name], strategy_detail=name, script=name, complete=False)
        .set(ranks=[RankRecord(rank=0, ending=Ending.EXCEPTION, message=name, host=name, device=name)])
        .unit(name)
        .span(0, SpanKind.FORWARD, 0, 9)
        .alloc(at=0, size=4, name=name, operator=name, unit=0)
        .build()
    )
    whole = r"[red]x[/red]\x1b[31m\x07\n:smile:"
    overview = shown(capsys, run.path)
    assert overview.splitlines()[0] == whole
    for text in (
        overview,
        *(shown(capsys, run.path, s) for s in ("memory", "units", "ranks", "collectives")),
    ):
        assert whole in text
        assert not set(text) & {"\x1b", "\x07", "☺", "😄"}


def test_an_unprintable_name_does_not_end_the_report_on_an_ascii_terminal(tmp_path):
    import os
    import subprocess
    import sys

    run = RunBuilder("modèle", path=tmp_path / "run").alloc(at=0, size=4).build()
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_profile", "show", str(run.path)],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
    )
    assert done.stdout.splitlines()[0] == b"mod\\xe8le"


def test_sixteen_ranks_are_listed_and_more_are_summed_up(capsys, tmp_path):
    def run_of(num_ranks: int):
        b = RunBuilder(path=tmp_path / f"{num_ranks}")
        for rank in range(num_ranks):
            b.rank(rank).alloc(at=0, size=(rank + 1) * MIB)
        return b.build().path

    text = shown(capsys, run_of(16))
    assert [line.split()[:2] for line in text.splitlines() if "forward  (no active unit)" in line] == [
        [str(rank), f"{rank + 1}.00"] for rank in range(16)
    ]
    lines = shown(capsys, run_of(17)).splitlines()
    assert [line.split() for line in lines if line.startswith(("minimum", "median", "maximum"))] == [
        ["minimum", "1.00", "MiB"],
        ["median", "9.00", "MiB"],
        ["maximum", "17.00", "MiB"],
    ]
    assert [line.split()[0] for line in lines if "forward  (no active unit)" in line] == ["16", "15", "14", "13", "12"]


def test_equal_ranks_take_one_line(capsys, tmp_path):
    assert "All 2 ranks peak at 56.00 MiB." in shown(capsys, ddp_run(tmp_path).path).splitlines()


def test_a_set_up_peak_above_the_training_peak_is_said(capsys, tmp_path):
    b = RunBuilder(path=tmp_path / "run").step(SETUP_STEP, 0, 10).step(0, 10, 20)
    run = b.alloc(at=1, free=5, size=9 * MIB).alloc(at=12, size=2 * MIB).build()
    line = next(line for line in shown(capsys, run.path).splitlines() if line.startswith("set-up"))
    assert " ".join(line.split()) == "set-up 9.00 MiB before the first forward: higher than in training"


def test_a_folder_with_one_run_is_that_run(capsys, tmp_path):
    fsdp2_run(tmp_path)
    assert shown(capsys, tmp_path).splitlines()[0] == "fsdp2"


def test_what_recording_cost_is_not_told_of_an_imported_run(capsys, tmp_path):
    run = RunBuilder("theirs", path=tmp_path / "theirs").step(0, 0, 9)
    run.set(extra={"imported": []}, receipt=Receipt(raw_bytes=2048, convert_ns=3_000_000)).build()
    told = shown(capsys, tmp_path / "theirs").split("What recording cost")[1]
    assert [" ".join(line.split()) for line in told.splitlines()[1:4]] == [
        "recording by other means: cost not recorded",
        "imported 2.00 KiB",
        "after the run 3.00 ms to make tables",
    ]
