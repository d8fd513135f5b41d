"""`fsdp-profile plan`: whole pages as golden files, the document of --json, one line for nonsense."""

import json
from pathlib import Path

import pytest
from render.terminal.samples import check_golden

from fsdp_profile.commands import main

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_runs"
SIZES = ["--layers", "40", "--hidden", "5120", "--seq", "2048", "--vocab", "40960"]
ROW_KEYS = [
    "strategy", "world_size", "param_bytes", "grad_bytes", "optimizer_bytes", "states_bytes", "gathered_bytes",
    "reduced_bytes", "activation_bytes", "peak_bytes", "traffic_bytes_per_step", "fits", "basis", "error_ratio",
    "by_category",
]  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    return json.loads(said(capsys, *words, "--json"))


PAGES = {
    "formulas": ["--params", "13e9", "--recipe", "mixed-adamw", "--world-size", "8"],
    "activations": ["--params", "13B", *SIZES, "--device", "h100", "--as", "fsdp", "--as", "ddp", "--explain"],
    "gpus": ["--params", "13B", *SIZES, "--search", "gpus", "--device", "h100"],
    "batch": ["--params", "13B", *SIZES, "--search", "batch", "--device", "h100", "--world-size", "16"],
    "from": ["--from", str(SAMPLES / "gpt-fsdp2-2ranks"), "--as", "ddp", "--as", "fsdp", "--world-size", "2,8"],
    "verify": [
        "--from",
        str(SAMPLES / "gpt-fsdp2-2ranks"),
        "--as",
        "ddp",
        "--verify-run",
        str(SAMPLES / "gpt-ddp-2ranks"),
    ],
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("page", PAGES)
def test_pages(page: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    check_golden(f"plan_{page}_{columns}", said(capsys, *PAGES[page]))


def test_the_document_of_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--params", "13e9", "--world-size", "8", "--device", "80GB")
    assert list(found) == ["schema", "model", "rows", "remarks"]
    assert found["model"] == {"numel": 13 * 10**9, "trainable_numel": 13 * 10**9, "recipe": "mixed-adamw"}
    assert [list(row) for row in found["rows"]] == [ROW_KEYS] * 6
    assert [(row["strategy"], row["states_bytes"], row["fits"]["80GB"]) for row in found["rows"]] == [
        ("ddp", 208 * 10**9, False),
        ("zero1", 71_500_000_000, None),
        ("zero2", 48_750_000_000, None),
        ("fsdp", 26 * 10**9, None),
        ("fsdp-no-reshard", 26 * 10**9, None),
        ("hsdp", 52 * 10**9, None),
    ]


def test_hsdp_can_be_given_by_its_shards(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--params", "8M", "--world-size", "8", "--as", "hsdp:2")
    assert [(row["strategy"], row["param_bytes"]) for row in found["rows"]] == [("hsdp", 8_000_000)]


def test_zero2_of_a_run_is_what_fsdp_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    (_, row) = document(capsys, "--from", RUN, "--as", "zero2")["rows"]
    assert (row["strategy"], row["param_bytes"]) == ("fsdp-no-reshard", 2 * 923_904)


def test_the_document_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *PAGES["gpus"], "--as", "fsdp")
    assert [(f["strategy"], f["world_size"], f["batch"]) for f in found["found"]] == [("fsdp", 4, None)]
    assert found["found"][0]["reason"].startswith("3 ranks would need ")


def test_the_document_from_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--from", str(SAMPLES / "gpt-fsdp2-2ranks"), "--world-size", "4")
    assert [(row["strategy"], row["world_size"], row["basis"]) for row in found["rows"]] == [
        ("fsdp", 2, "measured"),
        ("fsdp", 4, "calibrated"),
    ]
    assert found["rows"][1]["param_bytes"] == 923_904
    verified = document(capsys, *PAGES["verify"])
    assert abs(verified["error_ratio"]) < 0.001


def test_a_script_is_simulated_with_options_on_either_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "train_fsdp2.py")
    words = ["--json", script, "--world-size", "4", "--as", "ddp", "-o", str(tmp_path / "kept"), "--", "--layers", "2"]
    found = json.loads(said(capsys, *words))
    (row,) = found["rows"]
    assert (row["strategy"], row["world_size"], row["basis"]) == ("ddp", 4, "simulated")
    assert row["param_bytes"] == 4 * found["model"]["numel"] == 4 * 533_760
    assert sum(row["by_category"].values()) == row["peak_bytes"]
    assert main(["show", str(tmp_path / "kept")]) == 0
    assert "simulated, not measured: rank 0 of 4" in " ".join(capsys.readouterr().out.split())


RUN = str(SAMPLES / "gpt-ddp-2ranks")
NONSENSE = {
    "nothing": ([], "give --params 13e9, a script to simulate, or --from RUN"),
    "negative": (["--params", "-13"], "--params: '-13' is not a whole number"),
    "bytes": (["--params", "13GB"], "--params: '13GB' is a size in bytes, not a number"),
    "zero": (["--params", "0"], "--params 0: give a number of parameters, 1 or more"),
    "no ranks": (["--params", "13B", "--world-size", "0"], "--world-size 0: give a number of ranks, 1 or more"),
    "ranks": (["--params", "13B", "--world-size", "-8"], "--world-size -8: give a number of ranks"),
    "mesh": (["--params", "13B", "--replicas", "3", "--as", "hsdp"], "--replicas 3 does not divide"),
    "replicas": (["--params", "13B", "--replicas", "0"], "--replicas 0: give a number of groups, 1 or more"),
    "device": (["--params", "13B", "--device", "h101"], "--device h101: not known; choose t4, "),
    "strategy": (["--params", "13B", "--as", "fdsp"], "--as fdsp: not known; choose one of ddp, "),
    "hsdp": (["--params", "13B", "--as", "hsdp:3"], "--as hsdp:3: 3 does not divide --world-size 8"),
    "hsdp of none": (["--params", "13B", "--as", "hsdp:0"], "--as hsdp:0: not known"),
    "recipe": (["--params", "13B", "--recipe", "adam"], "--recipe adam: not known; choose one of mixed-adamw, "),
    "trainable": (["--params", "13B", "--trainable", "14B"], "--trainable 14,000,000,000: between 0 and"),
    "unit": (["--params", "13B", "--largest-unit", "14B"], "--largest-unit 14,000,000,000: between 1 and"),
    "layers": (["--params", "13B", "--layers", "0"], "--layers 0: give a whole number, 1 or more"),
    "half": (["--params", "13B", "--hidden", "64"], "activations need --layers, --hidden and --seq together"),
    "depth": (["--params", "13B", "--depth", "0"], "--depth 0: give the units gathered at once"),
    "search": (["--params", "13B", "--search", "gpus"], "--search: name the one device to fit"),
    "search batch": (["--params", "13B", "--search", "batch", "--device", "h100"], "--search batch: the activations"),
    "search run": (["--from", "x", "--search", "gpus"], "--search needs --params"),
    "sizes": (["--params", "13B", "--as", "hsdp:4", "--as", "hsdp:2"], "one size of HSDP's shards at a time"),
    "two sizes": (["--params", "13B", "--as", "hsdp:4", "--replicas", "4"], "--as hsdp:4 on 8 ranks makes 2; give one"),
    "verify formulas": (["--params", "13B", "--verify"], "--verify: not looked at with --params"),
    "the script's": (["t.py", "--layers", "2"], "--layers: not looked at with a script; if it is the script's, put it"),
    "formulas of a run": (["--from", RUN, "--layers", "4"], "--layers: not looked at with --from RUN"),
    "replay and script": (["--from", RUN, "t.py", "--seq-ratio", "2"], "--seq-ratio: not looked at with --from RUN"),
    "both": (["--params", "13B", "train.py"], "give a script, or --params, not both"),
    "both sources": (["--params", "13B", "--from", "run"], "give --from RUN, or --params, not both"),
    "script": (["none.py"], "none.py: no such file"),
    "steps": (["--steps", "0", str(ROOT / "examples" / "gpt.py")], "--steps 0: give 1 or more"),
    "run": (["--from", "none"], "none: no such file or folder"),
    "ratio": (["--from", RUN, "--batch-ratio", "0"], "--batch-ratio 0: give a number above 0"),
    "verify several": (["--from", RUN, "--verify", "--world-size", "2,4"], "--verify: 2 configurations are planned"),
    "verify": (
        ["--from", str(SAMPLES / "gpt-ddp-2ranks"), "--verify-run", str(SAMPLES / "gpt-hsdp-4ranks")],
        "it is hsdp on 4 ranks, which was not planned (ddp on 2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_gets_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, why = NONSENSE[case]
    assert main(["plan", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fsdp-profile: ") and err.count("\n") == 1
    assert why in err


@pytest.mark.slow
def test_verify_records_what_was_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "train_fsdp2.py")
    sizes = ["--dim", "128", "--layers", "4", "--batch", "2", "--seq-len", "32", "--steps", "3"]
    source = str(SAMPLES / "gpt-fsdp2-2ranks")
    words = ["--from", source, "--world-size", "4", "--verify", "-o", str(tmp_path / "run"), "--json"]
    found = json.loads(said(capsys, *words, script, "--", *sizes))
    assert [(row["strategy"], row["world_size"], row["basis"]) for row in found["rows"]] == [
        ("fsdp", 4, "calibrated"),
        ("fsdp", 4, "measured"),
    ]
    assert abs(found["error_ratio"]) <= 0.05


def test_an_unknown_option_before_a_script_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--paramz", "13B"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
