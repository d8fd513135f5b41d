import pytest
from builder import RunBuilder

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, OutputError
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.ingest import tags


@pytest.fixture
def run(tmp_path):
    return RunBuilder("one", path=tmp_path / "one").alloc(at=1, size=4).build()


def test_tags_are_kept_beside_what_was_recorded(run):
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert tags.read_tags(run.path) == ()
    tags.write_tags(run.path, ("slow", " baseline ", "", "slow"))
    assert tags.read_tags(run.path) == ("baseline", "slow")
    assert {path: path.read_bytes() for path in before} == before
    assert b"baseline" not in bundle_bytes(run)
    tags.write_tags(run.path, ())
    assert not (run.path / layout.TAGS).exists()


def test_too_many_and_too_long_ones_are_refused(run):
    with pytest.raises(ValueError, match="21 tags; a run takes 20"):
        tags.write_tags(run.path, tuple(map(str, range(21))))
    with pytest.raises(ValueError, match="longer than 40 characters"):
        tags.write_tags(run.path, ("x" * 41,))


def test_a_bundle_takes_none(run, tmp_path):
    path = tmp_path / "one.fsdpz"
    path.write_bytes(bundle_bytes(run))
    assert tags.read_tags(path) == ()
    with pytest.raises(OutputError, match=r"one\.fsdpz: a bundle takes no tags"):
        tags.write_tags(path, ("a",))


def test_a_folder_that_cannot_be_written_is_one_line(run, monkeypatch):
    monkeypatch.setattr(
        tags.Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system"))
    )
    with pytest.raises(OutputError, match=r"cannot be written .*; the tags stay as they are"):
        tags.write_tags(run.path, ("a",))


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"tags": 3}', b'{"tags": ["' + b"x" * 50 + b'"]}', b"\xff", b" " * 70_000]
)
def test_a_damaged_file_is_one_line(run, content):
    (run.path / layout.TAGS).write_bytes(content)
    with pytest.raises(InputError, match=r"tags\.json: "):
        tags.read_tags(run.path)
