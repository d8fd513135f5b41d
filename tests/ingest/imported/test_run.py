"""`fsdp-profile import`: which rank a file is of, what is refused, and what the run says of its files."""

import json

import pytest
from ingest.imported.importing import US, imported, pair, refused

from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.commands import main
from fsdp_profile.core.schema import Ending

NO_STEP = "no ProfilerStep annotation; the whole recording is taken as step 0"


def test_content_beats_the_name(kineto_cases, tmp_path):
    files = pair(kineto_cases, "17-names")
    run = imported(tmp_path, *files)
    assert [(i["rank"], i["file"]) for i in run.manifest.extra["imported"]] == [(0, files[0].name), (1, files[1].name)]
    assert f"rank 1: {files[1].name}: rank 1 by content; file name says 0, which is not used" in run.manifest.warnings


def test_a_list_without_rank_gets_one_by_order(kineto_cases, tmp_path):
    path = kineto_cases / "21-top-level-list-string-pids.json"
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert run.ranks == (0, 1)
    assert f"rank 1: {path.name}: rank assumed: 1, by order; neither its content nor its name has a rank" in (
        run.manifest.warnings
    )
    assert run.table("collectives", rank=1).num_rows == 0
    assert any("array format" in warning for warning in run.manifest.warnings)


def test_files_without_rank_take_the_free_ones(kineto_cases, tmp_path):
    nameless = tmp_path / "second.json"
    nameless.write_bytes((kineto_cases / "15-no-distributedInfo.json").read_bytes())
    run = imported(tmp_path, kineto_cases / "15-no-distributedInfo.json", nameless, kineto_cases / "00-good-rank1.json")
    assert {i["rank"]: i["file"] for i in run.manifest.extra["imported"]} == {
        0: "15-no-distributedInfo.json", 1: "00-good-rank1.json", 2: "second.json",
    }  # fmt: skip


def test_two_files_of_one_rank_are_refused_by_name(kineto_cases, capsys, tmp_path):
    first, second = kineto_cases / "00-good-rank0.json", kineto_cases / "12-base-time-differs-rank0.json"
    line = refused(capsys, tmp_path, first, second)
    assert line == f"{first} and {second}: both are the trace of rank 0; import one of them at a time"


def test_a_mixed_file_is_left_out_and_the_rest_is_kept(kineto_cases, capsys, tmp_path):
    path = kineto_cases / "28-two-ranks-wrote-one-file.json"
    assert refused(capsys, tmp_path, path).startswith(f"{path}: two traces are mixed in this file")
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert (run.ranks, run.manifest.complete) == ((0,), False)
    assert any(w.startswith(f"not imported: {path}: two traces are mixed") for w in run.manifest.warnings)


@pytest.mark.parametrize("name", ["25-metadata-only.json", "33-empty-file.json"])
def test_nothing_usable_is_one_line(kineto_cases, capsys, tmp_path, name):
    path = kineto_cases / name
    assert refused(capsys, tmp_path, path).startswith(f"{path}: ")
    assert refused(capsys, tmp_path, path, path.with_name("28-two-ranks-wrote-one-file.json")).endswith(
        "(2 files, none usable)"
    )


def test_files_of_jobs_of_different_sizes_are_told(kineto_cases, tmp_path):
    other = json.loads((kineto_cases / "00-good-rank1.json").read_text())
    other["distributedInfo"]["world_size"] = 16
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert run.manifest.warnings[0] == (
        "world sizes differ (rank 0 of 2, rank 1 of 16): these files may be of different jobs"
    )


def test_the_run_directory_is_new(kineto_cases, capsys, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    path = str(kineto_cases / "00-good-rank0.json")
    assert main(["import", path, "-o", str(tmp_path)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]
    assert main(["import", str(tmp_path / "absent.json"), "-o", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == f"fsdp-profile: {tmp_path / 'absent.json'}: no such file\n"
    assert main(["import", path, "-o", str(tmp_path / "named"), "--name", "mine"]) == 0
    assert load_run(tmp_path / "named").name == "mine"


def test_every_page_of_an_import_can_be_shown(kineto_cases, snapshot_cases, capsys, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "00-good"), snapshot_cases / "50-snap-good.pickle")
    for section in ([], ["memory"], ["units"], ["collectives"], ["ranks"]):
        assert main(["show", str(run.path), *section]) == 0
    assert "How the processes ended is not known: 2 ranks were imported." in capsys.readouterr().out
    assert main(["show", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["across_ranks"]["matched"] == 2
    assert found["across_ranks"]["clock"]["offset_ns"] == {"0": 0, "1": 0}
    assert found["across_ranks"]["stragglers"][0]["rank"] == 1
    assert found["across_ranks"]["by_kind"]["ALL_GATHER"] == {
        "matched": 1, "wait_ns": US, "transfer_ns": 100 * US, "busbw_bytes_per_s": 2048 / 1e-4 / 2,
    }  # fmt: skip


def test_a_folder_stands_for_the_files_in_it(kineto_cases, capsys, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for path in pair(kineto_cases, "00-good"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "notes.txt").write_text("not a trace")
    assert imported(tmp_path, folder).ranks == (0, 1)
    capsys.readouterr()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(capsys, tmp_path, empty) == (
        f"{empty}: no .json, .json.gz, .pickle, .pickle.gz, .pkl, .pkl.gz in this folder; give the files themselves"
    )


def test_the_rank_that_the_user_tells_wins(kineto_cases, capsys, tmp_path):
    path = kineto_cases / "00-good-rank1.json"
    folder = tmp_path / "run"
    assert main(["import", str(path), "-o", str(folder), "--rank", "5"]) == 0
    run = load_run(folder)
    assert (run.ranks, run.manifest.world_size) == ((5,), 6)
    assert f"rank 5: {path.name}: taken as rank 5, as given; the file says rank 1" in run.manifest.warnings
    capsys.readouterr()
    two = [str(p) for p in pair(kineto_cases, "00-good")]
    assert main(["import", *two, "--rank", "5", "-o", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == "fsdp-profile: --rank 5 is for one trace and one snapshot; 2 files were given\n"
    assert main(["import", two[0], "--rank", "-1", "-o", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()


def test_what_is_told_of_several_ranks_is_one_warning_and_how_they_ended_is_not_known(kineto_cases, tmp_path):
    nameless = tmp_path / "second.json"
    nameless.write_bytes((kineto_cases / "15-no-distributedInfo.json").read_bytes())
    run = imported(tmp_path, kineto_cases / "15-no-distributedInfo.json", nameless)
    assert f"ranks 0-1: {NO_STEP}" in run.manifest.warnings
    assert {record.ending for record in run.manifest.ranks} == {Ending.IMPORTED}
    assert [unit.num_reshards for unit in unit_summaries(run, rank=0)] == [None]
