import shutil

import pytest
from builder import RunBuilder
from commands.show.showing import shown
from render.terminal.samples import fsdp2_run

from fsdp_profile.commands import main
from fsdp_profile.core import layout
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Ending


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
