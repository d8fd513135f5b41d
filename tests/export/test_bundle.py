"""Bundles: every verb says the same of one as of its run; the same bytes each time; anything odd is refused."""

import io
import json
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builder import RunBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import ROOT

from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import TABLES
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.ingest import tables
from fsdp_profile.ingest.bundle import open_bundle

SAMPLES = sorted(p.name for p in (ROOT / "sample_runs").iterdir() if p.is_dir())
Member = tuple[str, bytes]


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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_bundle_with_any_byte_changed_is_read_as_it_was_or_refused(data, tmp_path_factory, small_bundle):
    content, rows = small_bundle
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "x.fsdpz"
    path.write_bytes(bytes(changed))
    try:
        assert load_run(path).table("allocations", rank=0).to_pylist() == rows
    except InputError as e:
        assert "\n" not in str(e)
    finally:
        path.unlink()


@pytest.fixture(scope="module")
def small_bundle() -> tuple[bytes, list[dict[str, object]]]:
    run = RunBuilder().alloc(at=1, free=9, size=4).build()
    return bundle_bytes(run), run.table("allocations", rank=0).to_pylist()


# --- hostile bundles -------------------------------------------------------------------------------------------------


@pytest.fixture
def members() -> list[Member]:
    """The members of a bundle that is right."""
    content = bundle_bytes(RunBuilder().alloc(at=1, free=9, size=4).build())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def zipped(members: list[Member], *, edit: Callable[[zipfile.ZipInfo], None] | None = None, method: int = 0) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            if edit is not None:
                edit(info)
            archive.writestr(info, content)
    return sink.getvalue()


def reindexed(members: list[Member]) -> list[Member]:
    """The same with an index that fits."""
    import hashlib

    index = json.loads(dict(members)["bundle.json"])
    kept = [(n, c) for n, c in members if n != "bundle.json"]
    index["members"] = {n: {"size_bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in kept}
    return [*kept, ("bundle.json", json.dumps(index).encode())]


def refusal(tmp_path: Path, content: bytes) -> str:
    """The one line, without the path at its start and the way out at its end."""
    path = tmp_path / "x.fsdpz"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        run = load_run(path)
        for rank in run.ranks:
            for table in TABLES:
                run.table(table, rank=rank)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{path}: ")
    assert [p.name for p in tmp_path.iterdir()] == ["x.fsdpz"], "something was written"
    text = str(error.value).removeprefix(f"{path}: ")
    return text.removeprefix("not a bundle that can be opened: ").removesuffix(
        "; ask for it again, or export the run again"
    )


def test_the_untouched_members_open(tmp_path, members):
    path = tmp_path / "x.fsdpz"
    path.write_bytes(zipped(reindexed(members)))
    assert load_run(path).table("allocations", rank=0).num_rows == 1


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd", "/etc/passwd", "rank_00000/../../x.parquet", "rank_00000\\steps.parquet", "a.pickle",
        "rank_00000/", "rank_0/steps.parquet", "rank_000000/steps.parquet", "C:/x", "rank_00000/steps.parquet ",
        "rank_00000/raw/capture.jsonl", "x" * 5000,
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path, members, name):
    told = refusal(tmp_path, zipped(reindexed([*members, (name, b"x")])))
    assert told == f"{(name if len(name) <= 60 else name[:60] + '...')!r} is no file of a run"


def test_names_twice_are_refused(tmp_path, members):
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = zipped([*members, members[0]])
    assert refusal(tmp_path, content) == "'manifest.json' is in it twice"


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK, stat.S_IFDIR])
def test_links_and_other_kinds_of_file_are_refused(tmp_path, members, kind):
    def edit(info: zipfile.ZipInfo) -> None:
        info.create_system = 3
        info.external_attr = (kind | 0o777) << 16

    assert refusal(tmp_path, zipped(members, edit=edit)) == "'manifest.json' is a link or another kind of file"


def test_compressed_members_are_refused_before_they_unfold(tmp_path, members):
    bomb = reindexed([(n, c + b" " * (100 << 20) if n == "manifest.json" else c) for n, c in members])
    content = zipped(bomb, method=zipfile.ZIP_DEFLATED)
    assert len(content) < 200_000
    assert refusal(tmp_path, content).startswith("'manifest.json' is compressed or encrypted")


def test_a_member_that_says_it_is_larger_than_the_file_is_refused(tmp_path, members):
    content = bytearray(zipped(members))
    entry = content.index(b"PK\x01\x02")
    struct.pack_into("<2L", content, entry + 20, 1 << 31, 1 << 31)
    assert refusal(tmp_path, bytes(content)) == "'manifest.json' overlaps another member or the end of the file"


def test_members_that_share_their_bytes_are_refused(tmp_path, members):
    """Overlapping members are how a small zip without compression becomes a large one."""
    content = bytearray(zipped(members))
    first = content.index(b"PK\x01\x02")
    second = content.index(b"PK\x01\x02", first + 1)
    struct.pack_into("<L", content, second + 42, 0)
    assert "overlaps another member" in refusal(tmp_path, bytes(content))


def test_wrong_checksums_are_refused(tmp_path, members):
    content = zipped([(n, c.replace(b'"run"', b'"rum"') if n == "manifest.json" else c) for n, c in members])
    assert refusal(tmp_path, content) == "'manifest.json' has a wrong checksum"


def test_members_the_index_does_not_know_are_refused(tmp_path, members):
    content = zipped([*members, ("rank_00007/steps.parquet", b"x")])
    assert refusal(tmp_path, content) == "'rank_00007/steps.parquet' is not listed"
    kept = [m for m in members if m[0] != "rank_00000/steps.parquet"]
    assert refusal(tmp_path, zipped(kept)) == "'rank_00000/steps.parquet' is listed but not there"


@pytest.mark.parametrize("name", ["bundle.json", "manifest.json"])
def test_a_bundle_without_its_papers_is_refused(tmp_path, members, name):
    assert refusal(tmp_path, zipped([m for m in members if m[0] != name])) == f"has no {name}"


@pytest.mark.parametrize("version", ["2.0", "99", ""])
def test_future_versions_are_refused(tmp_path, members, version):
    index = json.loads(dict(members)["bundle.json"])
    content = zipped([*members[:-1], ("bundle.json", json.dumps({**index, "version": version}).encode())])
    assert refusal(tmp_path, content) == (
        f"bundle version {version!r} is not readable by this release (it reads 1.0); upgrade fsdp-profile"
    )


def test_a_newer_minor_version_is_read(tmp_path, members):
    index = json.loads(dict(members)["bundle.json"])
    path = tmp_path / "x.fsdpz"
    newer = {**index, "version": "1.7", "unheard_of": [1]}
    path.write_bytes(zipped([*members[:-1], ("bundle.json", json.dumps(newer).encode())]))
    assert load_run(path).ranks == (0,)


def test_a_future_schema_of_the_run_is_refused(tmp_path, members):
    changed = [
        (n, c.replace(b'"schema": "2.0"', b'"schema": "3.0"') if n == "manifest.json" else c) for n, c in members
    ]
    assert refusal(tmp_path, zipped(reindexed(changed))).startswith("manifest.json: schema 3.0 is not readable")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all" * 100, b"\x80\x04\x95" * 50], ids=range(4))
def test_what_is_no_zip_is_refused(tmp_path, content):
    assert refusal(tmp_path, content).startswith("not a zip file, or cut off")


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_cut_bundle_is_refused(tmp_path, members, kept):
    content = zipped(members)
    assert refusal(tmp_path, content[: int(len(content) * kept)]).startswith("not a zip file, or cut off")


@pytest.mark.parametrize("name", ["bundle.json", "manifest.json"])
def test_deep_json_is_refused(tmp_path, members, name):
    deep = b'{"version":"1.0","schema":"1.0","name":"x","created":"","extra":{"a":' + b"[" * 200_000
    changed = [(n, deep if n == name else c) for n, c in members]
    told = refusal(tmp_path, zipped(changed if name == "bundle.json" else reindexed(changed)))
    assert "is not an index" in told or "not a run's manifest" in told


def test_a_table_that_would_unfold_is_refused(tmp_path, members, monkeypatch):
    """A run length stands for any number of rows: here 4 million of them in some 2 kB."""
    monkeypatch.setattr(tables, "FREE_TABLE_BYTES", 1 << 20)
    rows = 4_000_000
    columns = {c.name: pa.nulls(rows, pa.int64()).fill_null(0) for c in TABLES["steps"]}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    assert len(sink.getvalue()) < 100_000
    changed = [(n, sink.getvalue() if n.endswith("/steps.parquet") else c) for n, c in members]
    assert "would become 160,000,000 in memory; not opened" in refusal(tmp_path, zipped(reindexed(changed)))


def test_a_table_that_is_no_parquet_is_refused(tmp_path, members):
    changed = [(n, b"PAR1" + b"\xff" * 99 + b"PAR1" if n.endswith("/steps.parquet") else c) for n, c in members]
    assert "rank_00000/steps.parquet: damaged or not Parquet" in refusal(tmp_path, zipped(reindexed(changed)))


def test_a_bundle_that_changes_after_it_was_opened_is_refused(tmp_path, members):
    path = tmp_path / "x.fsdpz"
    path.write_bytes(zipped(members))
    bundle = open_bundle(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"PAR1", b"PAR2"))
    with pytest.raises(InputError, match="wrong checksum"):
        bundle.table("steps", rank=0)


def test_a_refusal_is_one_line_and_exit_code_2_from_every_verb(capsys, tmp_path):
    path = tmp_path / "x.fsdpz"
    path.write_bytes(b"PK")
    other = ROOT / "sample_runs" / "gpt-ddp-2ranks"
    for words in (
        ["show", path], ["show", path, "--json"], ["compare", path, other], ["dashboard", path], ["hta", path],
        ["check", path, "--max-peak", "1GiB"], ["check", other, "--baseline", path],
        ["export", path, "-o", tmp_path / "y.html"],
    ):  # fmt: skip
        assert main(list(map(str, words))) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"fsdp-profile: {path}: not a bundle that can be opened: ") and error.count("\n") == 1


def test_files_are_not_written_over(capsys, tmp_path):
    sample, path = ROOT / "sample_runs" / "gpt-ddp-2ranks", tmp_path / "x.fsdpz"
    path.write_bytes(b"mine")
    assert main(["export", str(sample), "-o", str(path)]) == 2
    assert capsys.readouterr().err == f"fsdp-profile: {path}: exists; choose another name, or say --force\n"
    assert path.read_bytes() == b"mine"
    assert main(["export", str(sample), "-o", str(path), "--force"]) == 0
    assert load_run(path).ranks == (0, 1)
