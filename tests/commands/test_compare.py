import json
import shutil
from pathlib import Path

import pytest
from builder import RunBuilder
from render.terminal.samples import MIB, check_golden, ddp_run, fsdp2_run

from fsdp_profile.analysis.run import Run
from fsdp_profile.commands import main
from fsdp_profile.commands.compare import _labelled
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.schema import Strategy


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def compared(capsys, *args: object) -> str:
    assert main(["compare", *map(str, args)]) == 0
    return capsys.readouterr().out


def run_of(path, *, size: int, strategy: Strategy = Strategy.FSDP2, name: str | None = None, **manifest):
    b = RunBuilder(name or path.name, strategy=strategy, path=path).set(**manifest)
    return b.alloc(at=0, size=size).build().path


@pytest.mark.parametrize("columns", [80, 120])
def test_two_runs_are_as_reviewed(capsys, monkeypatch, tmp_path, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = compared(capsys, ddp_run(tmp_path).path, fsdp2_run(tmp_path).path)
    assert max(map(len, text.splitlines())) <= columns
    check_golden(f"compare_{columns}", text)


@pytest.mark.parametrize("columns", [80, 120])
def test_four_runs_are_as_reviewed(capsys, monkeypatch, tmp_path, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ddp_run(tmp_path), fsdp2_run(tmp_path)
    run_of(tmp_path / "hsdp", size=70 * MIB, strategy=Strategy.HSDP)
    run_of(tmp_path / "zero", size=56 * MIB, strategy=Strategy.NONE)
    text = compared(capsys, tmp_path, "--baseline", tmp_path / "ddp")
    assert max(map(len, text.splitlines())) <= columns
    check_golden(f"compare_four_{columns}", text)


@pytest.mark.parametrize(
    ("size", "change"),
    [
        (6 * MIB, "6.00 MiB at its peak where DDP needs 8.00 MiB: 25.0 % less (2.00 MiB saved per rank)."),
        (
            9 * MIB,
            "9.00 MiB at its peak where DDP needs 8.00 MiB: 12.5 % more, not less (1.00 MiB more per rank).",
        ),
        (8 * MIB, "8.00 MiB at its peak where DDP needs 8.00 MiB: no difference."),
    ],
)
def test_the_verdict_says_less_more_or_the_same(capsys, monkeypatch, tmp_path, size, change):
    monkeypatch.setenv("COLUMNS", "200")
    ddp = run_of(tmp_path / "d", size=8 * MIB, strategy=Strategy.DDP)
    assert compared(capsys, ddp, run_of(tmp_path / "f", size=size)).splitlines()[0] == f"FSDP2 needs {change}"


def test_runs_of_one_strategy_are_told_apart_by_name(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    runs = run_of(tmp_path / "a", size=8 * MIB), run_of(tmp_path / "b", size=4 * MIB)
    assert compared(capsys, *runs).splitlines()[0] == (
        "b (FSDP2) needs 4.00 MiB at its peak where a (FSDP2) needs 8.00 MiB: 50.0 % less (4.00 MiB saved per rank)."
    )


def test_of_several_runs_the_verdict_names_the_one_that_needs_least(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    runs = [run_of(tmp_path / name, size=size * MIB) for name, size in (("a", 8), ("b", 6), ("c", 10))]
    assert compared(capsys, *runs).splitlines()[0] == (
        "Of 3 runs b (FSDP2) needs least, 6.00 MiB at its peak where a (FSDP2) needs 8.00 MiB: "
        "25.0 % less (2.00 MiB saved per rank)."
    )
    assert compared(capsys, *runs, "--baseline", runs[1]).splitlines()[0] == (
        "No run needs less than b (FSDP2): 6.00 MiB at its peak."
    )


def test_the_baseline_may_be_named_and_need_not_be_in_the_list(capsys, tmp_path):
    ddp, fsdp2 = ddp_run(tmp_path).path, fsdp2_run(tmp_path).path
    for args in ((ddp, fsdp2, "--baseline", fsdp2), (ddp, "--baseline", fsdp2)):
        document = json.loads(compared(capsys, *args, "--json"))
        assert (document["runs"], document["baseline"]) == (["fsdp2", "ddp"], "fsdp2")


def test_runs_of_one_name_are_called_by_their_paths(capsys, tmp_path):
    paths = [run_of(tmp_path / folder / "run", size=4, name="run") for folder in ("a", "b")]
    document = json.loads(compared(capsys, *paths, "--json"))
    assert (document["runs"], document["baseline"]) == (["a/run", "b/run"], "a/run")


def test_of_a_folder_the_runs_without_a_peak_are_left_out_and_named(capsys, tmp_path):
    for name, size in (("a", 8), ("b", 4)):
        run_of(tmp_path / name, size=size)
    empty = RunBuilder("empty", path=tmp_path / "empty").rank(0).build().path
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    assert main(["compare", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"fsdp-profile: left out: {broken}/manifest.json: ")
    assert lines[1:] == [
        f"fsdp-profile: left out: {empty}: no allocator events of a training step in it; nothing to compare"
    ]
    document = json.loads(compared(capsys, tmp_path, "--json"))
    assert document["runs"] == ["a", "b"]
    assert [line.split(":")[0] for line in document["left_out"]] == [f"{broken}/manifest.json", str(empty)]
    assert main(["compare", str(tmp_path), str(empty)]) == 2  # one that is named must be fit to be compared
    assert capsys.readouterr().err.startswith(f"fsdp-profile: {empty}: no allocator events")
    shutil.rmtree(tmp_path / "a")
    assert main(["compare", str(tmp_path)]) == 2
    assert "compare needs at least two runs; left out: " in capsys.readouterr().err


def test_a_thousand_runs_of_one_name_are_told_apart():
    manifest = Manifest(name="run", created="", strategy=Strategy.NONE)
    runs = [Run(path=Path(f"/x/{i % 500}/{i // 500}/run"), manifest=manifest, ranks=()) for i in range(1000)]
    runs.append(Run(path=Path("/x/0/0/run/deeper"), manifest=manifest, ranks=()))
    labels = [run.name for run in _labelled(runs)]
    assert labels[:2] == ["0/0/run", "1/0/run"]
    assert labels[-1] == "deeper"
    assert len(set(labels)) == 1001


def test_runs_that_differ_are_warned_about(capsys, tmp_path):
    a = run_of(tmp_path / "a", size=8, strategy=Strategy.DDP)
    b = run_of(tmp_path / "b", size=4, versions={"torch": "2.6.0"}, script_args=["--[red]x[/red]"])
    lines = compared(capsys, a, b).splitlines()
    at = lines.index("These runs differ in more than their strategy")
    assert [line.rstrip() for line in lines[at + 1 : at + 3]] == [
        "- torch: 2.6.0 in b, 2.13.0 in a",
        "- script arguments: --[red]x[/red] in b,  in a",
    ]


def test_unknown_is_a_row_even_when_it_is_nothing(capsys, tmp_path):
    text = compared(capsys, run_of(tmp_path / "a", size=8), run_of(tmp_path / "b", size=4))
    assert ["?", "unknown", "0", "B", "0", "B", "="] in [line.split() for line in text.splitlines()]


NO_COST = dict.fromkeys(("step_ns", "size_bytes", "wire_bytes", "communication_ns", "exposed_ns"))


def test_json_is_this_document(capsys, tmp_path):
    ddp = (
        RunBuilder("ddp", strategy=Strategy.DDP, path=tmp_path / "ddp")
        .alloc(at=0, size=60, category=Category.PARAM)
        .alloc(at=1, size=40)
        .build()
    )
    fsdp2 = (
        RunBuilder("fsdp2", path=tmp_path / "fsdp2")
        .set(world_size=2)
        .alloc(at=0, size=30, category=Category.PARAM)
        .alloc(at=1, size=45)
        .build()
    )
    assert json.loads(compared(capsys, fsdp2.path, ddp.path, "--json")) == {
        "schema": "2.0",
        "runs": ["fsdp2", "ddp"],
        "baseline": "ddp",
        "peak": [
            {
                "run": "fsdp2",
                "allocated_bytes": 75,
                "reduction_ratio": 0.25,
                "by_category": {"ACTIVATION": 45, "PARAM": 30},
                "change_by_category": {"PARAM": -30, "ACTIVATION": 5},
            },
            {
                "run": "ddp",
                "allocated_bytes": 100,
                "reduction_ratio": 0.0,
                "by_category": {"PARAM": 60, "ACTIVATION": 40},
                "change_by_category": {},
            },
        ],
        "by_phase": [{"phase": "FORWARD", "peak_bytes": [75, 100]}],
        "by_unit": [],
        "per_step": [{"run": name, **NO_COST} for name in ("fsdp2", "ddp")],
        "losses": [],
        "why": ["parameters -30 B against ddp", "activations +5 B against ddp"],
        "differences": ["world size: 2 in fsdp2, 1 in ddp"],
        "left_out": [],
    }


def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path):
    run = run_of(tmp_path / "a", size=8)
    empty = RunBuilder("empty", path=tmp_path / "empty").rank(0).build().path
    for args, error in (
        ([run], "compare needs at least two runs"),
        ([run, run], f"{run}: the same run is given twice; compare it with another"),
        ([run, empty], f"{empty}: no allocator events of a training step in it"),
        ([run, tmp_path / "absent"], f"{tmp_path}/absent: no such file or folder"),
    ):
        assert main(["compare", *map(str, args)]) == 2
        done = capsys.readouterr()
        assert done.err.startswith(f"fsdp-profile: {error}")
        assert (done.out, done.err.count("\n")) == ("", 1)


def test_what_more_ranks_can_give_is_told_apart_from_what_they_cannot(capsys, monkeypatch, tmp_path):
    """pytorch/pytorch#82001: T5-3B in bf16, 28 GB reserved on 8 GPUs and 24 GB on 32: 2851e6 x 16 B is 5.31 GiB of
    states over 8 ranks, 1.33 GiB over 32; only 3.98 GiB can come from sharding further."""
    monkeypatch.setenv("COLUMNS", "200")
    params = 2_851_000_000
    paths = []
    for shards in (8, 32):
        run = RunBuilder(f"t5-{shards}", path=tmp_path / f"t5-{shards}").set(world_size=shards)
        run.unit("encoder", shard_size=shards).alloc(at=1, size=18 << 30)
        for at, (category, size) in enumerate(
            ((Category.PARAM, 2), (Category.GRAD, 2), (Category.OPTIMIZER_STATE, 12)), start=2
        ):
            run.alloc(at=at, size=params * size // shards, category=category)
        paths.append(run.build().path)
    text = compared(capsys, *paths)
    assert (
        "states (parameters, gradients, optimizer) -3.98 GiB against t5-8: all that 32 instead of 8 shards can change"
    ) in " ".join(text.split())
