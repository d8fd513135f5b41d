"""Bundles: anything odd is refused."""

import io
import json
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

Member = tuple[str, bytes]


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
