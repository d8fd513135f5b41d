import json
import shutil

import pytest
from builder import RunBuilder
from render.terminal.samples import MIB, check_golden, ddp_run, fsdp2_run

from fsdp_profile.commands import main
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import RankRecord, Receipt
from fsdp_profile.core.schema import SETUP_STEP, CollectiveKind, Ending, Phase, SpanKind


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("COLORTERM", "truecolor")  # rich keeps the codes of a style, for whichever test comes next
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def shown(capsys, *args: object) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


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


def test_a_run_without_events_says_so_and_shows_no_zero(capsys, tmp_path):
    text = shown(capsys, RunBuilder(path=tmp_path / "run").rank(0).build().path)
    assert "The peak is not recorded: no allocator events of a training step." in text
    assert " 0 B" not in text


def test_a_damaged_table_is_one_line_and_the_rest_is_shown(capsys, tmp_path):
    run = fsdp2_run(tmp_path)
    path = layout.table_path(run.path, 1, "collectives")
    path.write_bytes(path.read_bytes()[:100])
    assert main(["show", str(run.path)]) == 2
    text = capsys.readouterr().out
    assert text.count("damaged or not Parquet") == 1
    assert "Peak 31.00 MiB allocated on rank 1" in text


def test_a_rank_that_cannot_be_read_is_not_silently_left_out(capsys, tmp_path):
    run = fsdp2_run(tmp_path)
    layout.table_path(run.path, 1, "memory_samples").write_bytes(b"")
    assert main(["show", str(run.path)]) == 2
    text = capsys.readouterr().out
    assert "Peak 30.00 MiB allocated on rank 0" in text
    assert "1 of 2 ranks could not be read: their peaks may be higher." in text


def test_files_that_contradict_each_other_are_one_line(capsys, tmp_path):
    run = RunBuilder(path=tmp_path / "run").alloc(at=0, size=4).build()
    other = RunBuilder(path=tmp_path / "other").alloc(at=0, size=4).alloc(at=1, size=4).alloc(at=2, size=4).build()
    source = layout.table_path(other.path, 0, "allocations")
    layout.table_path(run.path, 0, "allocations").write_bytes(source.read_bytes())  # speaks of event 2, there is one
    assert main(["show", str(run.path), "--json"]) == 2
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.startswith(f"fsdp-profile: {run.path}: its files contradict each other (")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["{0}/absent"], "{0}/absent: no such file or folder"),
        (["{0}"], "{0}: 2 runs in it, name one of them (newest first): "),
        (["{0}/a", "--rank", "7"], "{0}/a: rank 7 recorded nothing here (ranks: 0)"),
        (["{0}/a", "--rank", "7", "--json"], "{0}/a: rank 7 recorded nothing here (ranks: 0)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path, args, error):
    for name in "ab":
        RunBuilder(name, path=tmp_path / name).alloc(at=0, size=1).build()
    assert main(["show", *(arg.format(tmp_path) for arg in args)]) == 2
    done = capsys.readouterr()
    assert done.err.startswith(f"fsdp-profile: {error.format(tmp_path)}")
    assert (done.out, done.err.count("\n")) == ("", 1)


def test_a_folder_with_one_run_is_that_run(capsys, tmp_path):
    fsdp2_run(tmp_path)
    assert shown(capsys, tmp_path).splitlines()[0] == "fsdp2"


def test_json_has_the_keys_other_programs_rely_on(capsys, tmp_path):
    document = json.loads(shown(capsys, fsdp2_run(tmp_path).path, "--json"))
    keys = {
        "": {"schema", "run", "ranks", "units", "in_flight", "collectives", "findings", "receipt", "not_recorded"},
        "run": {"name", "strategy", "world_size", "device_type", "torch", "complete"},
        "ranks": {"rank", "peak", "reserved_peak_bytes", "device_used_peak_bytes", "setup_peak_bytes"},
        "units": {
            "name", "numel", "sharded_bytes", "unsharded_bytes", "num_gathers", "num_reshards", "gathered_ns",
            "all_gather_ns", "reduce_scatter_ns", "exposed_ns",
        },
        "collectives": {"total_ns", "exposed_ns", "overlapped_ns", "by_kind", "per_step"},
    }  # fmt: skip
    for place, expected in keys.items():
        found = document[place] if place else document
        for item in found if isinstance(found, list) else [found]:
            assert expected <= set(item), place
    assert {"allocated_bytes", "step", "phase", "unit", "t_ns", "by_category", "unknown_ratio"} <= set(
        document["ranks"][0]["peak"]
    )
    assert document["collectives"]["by_kind"]["ALL_GATHER"].keys() == {"count", "bytes", "ns", "exposed_ns"}


def test_json_of_a_small_run_is_this_document(capsys, tmp_path):
    run = (
        RunBuilder("tiny", path=tmp_path / "tiny")
        .set(
            command=["fsdp-profile", "run", "train.py"],
            strategy_detail="FSDP2",
            sources={"units": "recorded"},
        )
        .step(SETUP_STEP, 0, 10)
        .step(0, 10, 100)
        .phase(Phase.SETUP, 0, 10, step=SETUP_STEP)
        .phase(Phase.FORWARD, 10, 100)
        .unit("layers.0", numel=8, sharded=16, unsharded=32)
        .span(0, SpanKind.ALL_GATHER, 12, 14)
        .span(0, SpanKind.UNSHARDED, 12, 40)
        .span(0, SpanKind.RESHARD, 40, 41)
        .collective(CollectiveKind.ALL_GATHER, 12, 22, unit=0, size_bytes=32)
        .kernel(20, 30)
        .alloc(at=1, size=16, category=Category.PARAM)
        .alloc(at=13, size=32, category=Category.UNSHARDED_PARAM, unit=0)
        .build()
    )
    document = json.loads(shown(capsys, run.path, "--json"))
    found = document.pop("findings")
    assert [f["rule"] for f in found] == ["kept-unsharded", "too-few-ranks"]
    assert found[1] == {
        "rule": "too-few-ranks",
        "severity": "EXPLAINS",
        "claim": "Over 2 ranks sharding saves 16 B of states and needs 32 B of gathered parameters and buffers at the "
        "peak.",
        "evidence": {"shard_size": 2, "saved_bytes": 16, "transient_bytes": 32},
        "action": "Smaller units make the second number smaller; more ranks make the first one larger.",
        "saves_bytes": None,
        "saves_ns": None,
        "is_estimate": True,
        "rank": 0,
        "unit": None,
    }
    assert [test["is_reason"] for test in document.pop("why_not_smaller")] == [None, False, True, True]
    assert document == {
        "schema": "2.0",
        "run": {
            "name": "tiny",
            "strategy": "FSDP2",
            "strategy_detail": "FSDP2",
            "world_size": 1,
            "device_type": "cpu",
            "device_name": "",
            "torch": "2.13.0",
            "complete": True,
            "created": "2026-01-02T03:04:05+00:00",
            "command": ["fsdp-profile", "run", "train.py"],
            "model": {
                "name": "GPT",
                "numel": 100,
                "trainable_numel": 0,
                "num_params": 4,
                "param_bytes": 400,
                "dtypes": {"float32": 100},
            },
            "sources": {"units": "recorded"},
        },
        "ranks": [
            {
                "rank": 0,
                "peak": {
                    "allocated_bytes": 48,
                    "step": 0,
                    "phase": "FORWARD",
                    "unit": "layers.0",
                    "t_ns": 13,
                    "by_category": {"UNSHARDED_PARAM": 32, "PARAM": 16},
                    "unknown_ratio": 0.0,
                },
                "setup_peak_bytes": 16,
                "reserved_peak_bytes": None,
                "device_used_peak_bytes": None,
                "host_rss_peak_bytes": None,
                "waterfall": None,
                "host_states": None,
                "source_lines": None,
                "modules": None,
                "peak_of_phases": {
                    "SETUP": {"allocated_bytes": 16, "step": -1, "t_ns": 1},
                    "FORWARD": {"allocated_bytes": 48, "step": 0, "t_ns": 13},
                },
                "num_steps": 1,
                "median_step_ns": None,
                "ending": "COMPLETED",
                "exit_code": 0,
                "conservation": {"num_events": 2, "category_errors": 0, "reported_errors": 0},
            }
        ],
        "reported_rank": 0,
        "units": [
            {
                "name": "layers.0",
                "kind": "FSDP2",
                "numel": 8,
                "sharded_bytes": 16,
                "unsharded_bytes": 32,
                "shard_size": 2,
                "replicate_size": 1,
                "num_gathers": 1,
                "num_reshards": 1,
                "gathered_ns": 28,
                "all_gather_ns": 10,
                "reduce_scatter_ns": 0,
                "exposed_ns": 8,
            }
        ],
        "in_flight": [
            {
                "phase": "FORWARD",
                "step": 0,
                "max_gathered": 1,
                "gathered_bytes": 32,
                "units": ["layers.0"],
                "max_ahead": 1,
                "ahead_bytes": 32,
                "held_bytes": 32,
            }
        ],
        "collectives": {
            "total_ns": 10,
            "exposed_ns": 8,
            "overlapped_ns": 2,
            "by_kind": {"ALL_GATHER": {"count": 1, "bytes": 32, "ns": 10, "exposed_ns": 8}},
            "per_step": {"size_bytes": 32, "wire_bytes": 16, "num_steps": 1, "num_unknown": 0},
            "by_group": [
                {
                    "group": "",
                    "group_description": "",
                    "group_size": 2,
                    "count": 1,
                    "bytes": 32,
                    "ns": 10,
                    "exposed_ns": 8,
                    "algbw_bytes_per_s": None,
                    "busbw_bytes_per_s": None,
                }
            ],
        },
        "time_by_step": [
            {
                "step": 0,
                "span_ns": 90,
                "compute_ns": 10,
                "communication_ns": 10,
                "exposed_ns": 8,
                "memory_ns": 0,
                "idle_ns": 72,
                "host_bound_ns": None,
                "host_bound_not_recorded": "it ran on CPU: host and device are one",
                "overlapped_ns": 2,
                "collectives": [
                    {
                        "phase": "FORWARD",
                        "kind": "ALL_GATHER",
                        "count": 1,
                        "total_ns": 10,
                        "exposed_ns": 8,
                        "size_bytes": 32,
                    }
                ],
            }
        ],
        "across_ranks": {
            "matched": 0,
            "unmatched": 1,
            "unmatched_why": {"the ranks of its group are not known": 1},
            "clock": {
                "offset_ns": None,
                "residual_ns": None,
                "reason": "no collective was recorded by all of its ranks",
            },
            "stragglers": [],
            "never_joined": [],
            "by_kind": {},
        },
        "growth": [],
        "kept_unsharded": [{"unit": 0, "name": "layers.0", "step": 0, "size_bytes": 32}],
        "post_mortems": [],
        "receipt": {
            "hook_events": 0,
            "allocator_events": 0,
            "flush_ns": 0,
            "raw_bytes": 0,
            "convert_ns": 0,
            "recorded_step_ns": None,
            "bare_step_ns": None,
            "num_bare_steps": 0,
        },
        "warnings": [],
        "not_recorded": {
            "reserved_peak_bytes": "the CPU allocator has no reserved pool",
            "device_used_peak_bytes": "the ranks ran on CPU",
        },
    }


def test_json_is_the_only_thing_on_standard_output_whatever_the_section(capsys, tmp_path):
    run = fsdp2_run(tmp_path)
    assert main(["show", str(run.path), "units", "--json"]) == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["run"]["name"] == "fsdp2"
    assert done.err == ""


def test_json_of_a_rank_has_its_units_and_collectives(capsys, tmp_path):
    path = fsdp2_run(tmp_path).path
    documents = [json.loads(shown(capsys, path, "--json", "--rank", str(rank))) for rank in (0, 1)]
    assert [document["reported_rank"] for document in documents] == [0, 1]


def test_a_table_that_is_missing_is_one_line_and_no_zero(capsys, tmp_path):
    path = fsdp2_run(tmp_path).path
    lost = layout.table_path(path, 1, "unit_spans")
    lost.unlink()
    assert main(["show", str(path), "units", "--rank", "1"]) == 2
    done = capsys.readouterr()
    line = f"fsdp-profile: {lost}: the table is missing, and so is what it was made of; record the run again"
    assert done.err.splitlines() == [line]
    assert "0 gathers" not in done.out


def test_a_rank_whose_folder_is_gone_is_missed(capsys, tmp_path):
    run = RunBuilder(path=tmp_path / "run").alloc(at=1, size=1)
    run.rank(1).alloc(at=1, size=1)
    records = [RankRecord(rank=r, ending=Ending.COMPLETED, exit_code=0, pid=40 + r) for r in (0, 1)]
    path = run.set(ranks=records).build().path
    shutil.rmtree(layout.rank_dir(path, 1))
    for section in ([], ["ranks"]):
        assert main(["show", str(path), *section]) == 0
        said = "".join(capsys.readouterr().out.split())
        assert f"Rank1recordedtoo,butitsfolderisnotin{path}" in said


def test_what_recording_cost_is_not_told_of_an_imported_run(capsys, tmp_path):
    run = RunBuilder("theirs", path=tmp_path / "theirs").step(0, 0, 9)
    run.set(extra={"imported": []}, receipt=Receipt(raw_bytes=2048, convert_ns=3_000_000)).build()
    told = shown(capsys, tmp_path / "theirs").split("What recording cost")[1]
    assert [" ".join(line.split()) for line in told.splitlines()[1:4]] == [
        "recording by other means: cost not recorded",
        "imported 2.00 KiB",
        "after the run 3.00 ms to make tables",
    ]
