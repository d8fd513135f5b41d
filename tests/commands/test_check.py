"""The verb `check`: exit codes and its four outputs; ten recordings agree, and planted regressions are named."""

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from builder import RunBuilder
from recording import ROOT, SCRIPTS, fsdp_profile
from render.terminal.samples import check_golden, ddp_run, fsdp2_run

from fsdp_profile.commands import build_parser, main
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Ending

SAMPLES = ROOT / "sample_runs"
FSDP2, DDP = str(SAMPLES / "gpt-fsdp2-2ranks"), str(SAMPLES / "gpt-ddp-2ranks")
HOSTILE = "<b>|@me `x` [y](http://z)\x1b[31m"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--max-peak", "10.99MiB"], 0), (["--max-peak", "10.97MiB"], 1), (["--max-unknown", "0"], 0),
        (["--max-exposed", "100%"], 0), (["--max-exposed", "1%"], 1), (["--max-reserved", "80GiB"], 1),
        (["--baseline", FSDP2], 0), (["--baseline", DDP], 1),
    ],
)  # fmt: skip
def test_the_exit_code_is_the_verdict(capsys, options, code):
    assert main(["check", FSDP2, *options]) == code
    assert capsys.readouterr().err == ""


def test_a_run_that_was_cut_off_is_said_beside_the_verdict(capsys, tmp_path):
    run = RunBuilder("cut", path=tmp_path / "cut").step(0, 0, 9).alloc(at=1, size=8)
    run = run.set(complete=False, ranks=[RankRecord(rank=0, ending=Ending.SIGNAL)]).build()
    assert main(["check", str(run.path), "--max-peak", "1MiB"]) == 0
    assert capsys.readouterr().err == f"fsdp-profile: {run.path} is not complete: what is checked is what was seen\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "nothing to check: give a limit such as --max-peak 40GiB, or --baseline RUN"),
        (["--max-peak", "lots"], "--max-peak: 'lots' is not a size; write it as 512MiB, 2GiB or 2GB"),
        (["--max-exposed=-3%"], "--max-exposed: '-3%' is not a share; write it as 20% or 0.2"),
        (["--max-unknown", "150%"], "--max-unknown: '150%' is more than the whole; write it as 20% or 0.2"),
        (["--max-exposed", "nan"], "--max-exposed: 'nan' is not a share; write it as 20% or 0.2"),
        (["--max-slowdown", "5%"], "--max-slowdown needs something to be slower than: give --baseline RUN"),
        (["--baseline", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, options, told):
    assert main(["check", FSDP2, *options]) == 2
    assert capsys.readouterr().err == f"fsdp-profile: {told}\n"


def test_the_page_names_what_failed_first(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    no_reshard = str(SAMPLES / "gpt-fsdp2-no-reshard-2ranks")
    assert main(["check", no_reshard, "--baseline", FSDP2, "--max-unknown", "1%"]) == 1
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "gpt-fsdp2-no-reshard-2ranks  11 of 30 checks failed against gpt-fsdp2-2ranks" in text
    assert "breach  unit layers.0 is gathered 1x per step, against 2x" in text
    assert text.index("breach  unit layers.3") < text.index("ok      unknown 0.0 % of the peak")
    assert text.rstrip().endswith("and 18 more that hold: categories, units, communicators")


@pytest.mark.parametrize("columns", [80, 120])
def test_the_page_is_as_reviewed(capsys, monkeypatch, tmp_path, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    run, base = fsdp2_run(tmp_path), ddp_run(tmp_path)
    limits = ["--max-peak", "40MiB", "--max-exposed", "5%", "--max-growth-per-step", "1MiB"]
    assert main(["check", str(run.path), "--baseline", str(base.path), *limits]) == 1
    check_golden(f"check_{columns}", capsys.readouterr().out)


def test_json_holds_every_check(capsys):
    assert main(["check", FSDP2, "--max-peak", "1MiB", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    [found] = document.pop("checks")
    assert document == {
        "schema": "2.0", "run": "gpt-fsdp2-2ranks", "baselines": [], "passed": False, "differences": []
    }  # fmt: skip
    assert found.pop("message").startswith("peak 10.98 MiB, 9.98 MiB over the limit of 1.00 MiB on rank 0")
    assert found == {
        "name": "max-peak", "verdict": "BREACH", "measured": 11509188, "limit": 1048576, "unit": "bytes", "rank": 0,
        "baseline": None,
    }  # fmt: skip


def hostile_run(path: Path, *, size: int) -> Path:
    return RunBuilder(HOSTILE, path=path).unit(HOSTILE).alloc(at=1, size=size, unit=0).build().path


def test_junit_and_markdown_tell_the_same_and_names_stay_text(capsys, tmp_path):
    old, new = hostile_run(tmp_path / "old", size=1 << 20), hostile_run(tmp_path / "new", size=1 << 22)
    junit, markdown = tmp_path / "check.xml", tmp_path / "check.md"
    words = ["check", str(new), "--baseline", str(old), "--junit", str(junit), "--markdown", str(markdown)]
    assert main(words) == 1
    assert "\x1b[31m" not in capsys.readouterr().out
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "0")
    failures = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failures == ["baseline/peak", "baseline/category/ACTIVATION"]
    text = markdown.read_text()
    assert text.startswith("### :x: fsdp-profile check: &lt;b&gt;\\|&#64;me \\`x\\` \\[y\\]\\(http:&#47;/z\\)\\\\x1b")
    assert "<b>" not in text and "@me" not in text and "](http" not in text
    assert re.search(r"^\| baseline/peak \| breach \| 4.00 MiB \| 1.00 MiB \| 1.06 MiB \|", text, re.M)
    assert main([*words[:4], "--markdown", "-"]) == 1
    assert capsys.readouterr().out == text


def test_the_commands_of_the_workflow_can_be_given():
    """docs/check.md shows a workflow; what its steps call has to parse."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    [workflow] = re.findall(r"```yaml\n(.*?)```", page, re.S)
    folded = re.sub(r">\n((?: {10}.*\n)+)", lambda m: " ".join(m[1].split()) + "\n", workflow)
    commands = re.findall(r"run: (fsdp-profile .*)", folded)
    assert [shlex.split(command)[1] for command in commands] == ["run", "check", "export"]
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same script ten times, and three changes to it."""
    folder = tmp_path_factory.mktemp("gate")
    variants = {f"same{i}": [] for i in range(10)}
    variants |= {"kept": ["--keep-unsharded", "1"], "batch": ["--batch", "22"], "group": ["--log-norm"]}
    for name, options in variants.items():
        script = [str(SCRIPTS / "gate.py"), *options]
        done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(folder / name), *script)
        assert done.returncode == 0, done.stderr
    return {name: folder / name for name in variants}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_recordings_agree_and_three_regressions_are_named(capsys, recordings):
    base = str(recordings["same0"])
    for i in range(10):
        code = main(["check", str(recordings[f"same{i}"]), "--baseline", base, "--max-unknown", "1%"])
        assert code == 0, capsys.readouterr().out
    told = {}
    for name in ("kept", "batch", "group"):
        capsys.readouterr()
        assert main(["check", str(recordings[name]), "--baseline", base, "--json"]) == 1
        checks = json.loads(capsys.readouterr().out)["checks"]
        told[name] = {check["name"]: check["message"] for check in checks if check["verdict"] != "OK"}
    # The peak itself moves by about one all-gather's output, which gloo's workers hold longer at times: told or not.
    assert set(told["kept"]) - {"baseline/peak"} == {
        "baseline/category/UNSHARDED_PARAM", "baseline/unit/1/gathers", "baseline/unit/1/reshards",
        "baseline/communicator/default_pg of 2 ranks/ALL_GATHER/of units",
    }  # fmt: skip
    assert told["kept"]["baseline/unit/1/reshards"] == "unit 1 is resharded 1x per step, against 2x"
    assert set(told["batch"]) == {
        "baseline/peak", "baseline/category/ACTIVATION", "baseline/category/INPUT", "baseline/category/TEMPORARY"
    }  # fmt: skip
    assert told["batch"]["baseline/category/ACTIVATION"].startswith(
        "activations 13.75 MiB against 12.50 MiB: +1.25 MiB (+10.0%)"
    )
    assert list(told["group"].values()) == [
        "one more communicator norms of 2 ranks: 1x ALL_REDUCE of no unit per step, none in the baseline"
    ]
