import json
import os
from pathlib import Path

import pytest

from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, SchemaError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.ingest.manifest import read_manifest, write_manifest
from fsdp_profile.ingest.rank.capture_log import read_capture_log

RANK = {"kind": "rank", "rank": 3, "start_ns": 5}


def write(path: Path, *records: object, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in records) + tail)
    return path


def test_a_line_cut_short_is_dropped_and_said(tmp_path: Path) -> None:
    log = read_capture_log(write(tmp_path / "capture.jsonl", RANK, tail=b'{"kind":"chunk","st'))
    assert log.rank == {"rank": 3, "start_ns": 5}
    assert log.warnings == [
        "capture.jsonl: line 2 is cut short (the process was killed, or the disk is full) and was dropped"
    ]
    assert log.end is None


def test_a_record_of_a_newer_release_is_ignored_and_said(tmp_path: Path) -> None:
    log = read_capture_log(write(tmp_path / "capture.jsonl", RANK, {"kind": "hologram"}))
    assert log.warnings == ["unknown record 'hologram' ignored; it was written by a newer release"]


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b'{"kind":'])
def test_a_log_without_one_whole_line_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "capture.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="nothing readable in it"):
        read_capture_log(path)


def test_reading_a_run_that_was_not_converted_writes_nothing_and_a_verb_converts_it_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_manifest(tmp_path, Manifest(name="r", created="now"))
    layout.raw_dir(tmp_path, 3).mkdir(parents=True)
    write(layout.capture_log(tmp_path, 3), RANK)
    run = load_run(tmp_path)
    assert run.ranks == (3,)
    assert run.table("steps", rank=3).column("step").to_pylist() == [-1]
    assert not layout.table_path(tmp_path, 3, "steps").exists()
    main(["show", str(tmp_path)])
    assert not layout.table_path(tmp_path, 3, "steps").exists()  # it may still be recorded
    os.utime(layout.capture_log(tmp_path, 3), (0, 0))
    capsys.readouterr()
    main(["show", str(tmp_path)])
    assert f"converting the recording in {tmp_path} into tables, once" in capsys.readouterr().err
    assert layout.table_path(tmp_path, 3, "steps").exists()


def test_an_unknown_major_schema_is_refused_and_a_newer_minor_read(tmp_path: Path) -> None:
    path = tmp_path / layout.MANIFEST
    path.write_text('{"schema": "1.7", "name": "r", "created": "now", "novelty": 1}')
    assert read_manifest(tmp_path).name == "r"
    path.write_text('{"schema": "3.0", "name": "r", "created": "now"}')
    with pytest.raises(SchemaError, match=r"schema 3\.0 is not readable by this release"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 1}', "\x00", '{"schema": "1.0", "name": 3}'])
def test_a_damaged_manifest_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / layout.MANIFEST).write_text(content)
    with pytest.raises(InputError) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_damaged_table_is_one_line_and_the_others_are_read(tmp_path: Path) -> None:
    from builder import RunBuilder

    run = RunBuilder(path=tmp_path / "r").alloc(at=0, size=4).build()
    layout.table_path(run.path, 0, "allocations").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="damaged or not Parquet"):
        run.table("allocations", rank=0)
    assert run.table("memory_samples", rank=0).num_rows == 1
