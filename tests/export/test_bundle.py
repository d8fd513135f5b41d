"""Bundles: every verb says the same of one as of its run; the same bytes each time."""

import os
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builder import RunBuilder
from recording import ROOT

from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core.schema import TABLES
from fsdp_profile.export.bundle import bundle_bytes

SAMPLES = sorted(p.name for p in (ROOT / "sample_runs").iterdir() if p.is_dir())


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every sample run as a bundle."""
    folder = tmp_path_factory.mktemp("bundles")
    for name in SAMPLES:
        (folder / f"{name}.fsdpz").write_bytes(bundle_bytes(load_run(ROOT / "sample_runs" / name)))
    return {name: folder / f"{name}.fsdpz" for name in SAMPLES}


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(list(map(str, words))) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", SAMPLES)
def test_show_says_the_same_of_a_bundle_byte_for_byte(capsys, bundles, name):
    for options in (["--json"], ["--json", "--rank", "1"], [], ["memory"], ["units"], ["collectives"], ["ranks"]):
        of_run = printed(capsys, "show", ROOT / "sample_runs" / name, *options)
        assert printed(capsys, "show", bundles[name], *options) == of_run


def test_compare_and_check_say_the_same_of_bundles_byte_for_byte(capsys, bundles):
    pair = ["gpt-ddp-2ranks", "gpt-fsdp2-2ranks"]
    folders, files = [ROOT / "sample_runs" / name for name in pair], [bundles[name] for name in pair]
    assert printed(capsys, "compare", *files, "--json") == printed(capsys, "compare", *folders, "--json")
    words = ["check", "--max-peak", "1GiB", "--json"]
    assert printed(capsys, *words, files[1]) == printed(capsys, *words, folders[1])
    words = ["check", "--json", "--baseline"]
    assert printed(capsys, *words, files[1], files[1]) == printed(capsys, *words, folders[1], folders[1])


def test_hta_names_what_a_bundle_lacks(capsys, bundles, tmp_path):
    assert main(["hta", str(bundles["gpt-fsdp2-2ranks"])]) == 2
    assert "no trace with device activity for HTA (it ran on CPU)" in capsys.readouterr().err
    trace = {"kind": "trace", "rank": 0, "file": "passwd", "path": "/etc/passwd"}
    run = RunBuilder().set(device_type="cuda", extra={"imported": [trace]}).alloc(at=1, size=4).build()
    path = tmp_path / "device.fsdpz"
    path.write_bytes(bundle_bytes(run))
    assert main(["hta", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"fsdp-profile: {path}: a bundle holds no traces; say where they are with: "
        f"fsdp-profile hta {path} --traces FOLDER\n"
    )


def test_the_same_run_gives_the_same_bytes_from_wherever_it_is_read(bundles, tmp_path):
    name = "gpt-hsdp-4ranks"
    content = bundles[name].read_bytes()
    assert bundle_bytes(load_run(bundles[name])) == content
    copy = tmp_path / "elsewhere" / "copied"
    shutil.copytree(ROOT / "sample_runs" / name, copy)
    os.utime(copy / "manifest.json", (1, 1))
    assert bundle_bytes(load_run(copy)) == content


def test_a_rank_that_recorded_no_memory_is_still_a_rank_of_the_bundle(tmp_path):
    run = RunBuilder().rank(0).alloc(at=1, size=4).rank(1).build()
    path = tmp_path / "run.fsdpz"
    path.write_bytes(bundle_bytes(run))
    found = load_run(path)
    assert found.ranks == (0, 1)
    for rank in (0, 1):
        for table in TABLES:
            assert found.table(table, rank=rank).to_pylist() == run.table(table, rank=rank).to_pylist()


def test_words_that_no_row_holds_stay_behind(bundles):
    """A recording's dictionaries hold all words of its log."""
    name = "gpt-fsdp2-2ranks"
    with pq.ParquetFile(ROOT / "sample_runs" / name / "rank_00000" / "kernels.parquet") as file:
        assert "exp_avg" in _words(file.read().column("name"))
    content = zipfile.ZipFile(bundles[name]).read("rank_00000/kernels.parquet")
    kept = pq.read_table(pa.BufferReader(content)).column("name")
    assert _words(kept) == sorted(set(kept.cast(pa.string()).to_pylist()))


def _words(column: pa.ChunkedArray) -> list[str]:
    return sorted(column.chunk(0).dictionary.to_pylist())


def test_files_are_not_written_over(capsys, tmp_path):
    sample, path = ROOT / "sample_runs" / "gpt-ddp-2ranks", tmp_path / "x.fsdpz"
    path.write_bytes(b"mine")
    assert main(["export", str(sample), "-o", str(path)]) == 2
    assert capsys.readouterr().err == f"fsdp-profile: {path}: exists; choose another name, or say --force\n"
    assert path.read_bytes() == b"mine"
    assert main(["export", str(sample), "-o", str(path), "--force"]) == 0
    assert load_run(path).ranks == (0, 1)
