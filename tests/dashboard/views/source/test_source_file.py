"""What a run names is read only below folders that it has no say in: a run may come from anybody."""

import os

import pytest

from fsdp_dashboard.views.source.queries import _folders
from fsdp_dashboard.views.source.source_file import MAX_BYTES, NOT_HERE, NotShown, SourceFile, read_source


@pytest.fixture
def folder(tmp_path):
    """The only folder that may be read, and a secret beside it."""
    (tmp_path / "secret.py").write_text("secret\n")
    inside = tmp_path / "mine"
    (inside / "pkg").mkdir(parents=True)
    (inside / "train.py").write_text("one\ntwo\n")
    return inside


def lines(file, *folders):
    found = read_source(file, folders=folders)
    assert isinstance(found, SourceFile), found
    return found.lines


def why(file, *folders):
    found = read_source(file, folders=folders)
    assert isinstance(found, NotShown), found
    return found.why


def test_a_file_below_the_folder_is_read(folder):
    (folder / "pkg" / "model.py").write_text("a\n")
    found = read_source("train.py", folders=[folder])
    assert (found.path, found.lines) == (folder / "train.py", ("one", "two"))
    assert found.changed_ns == (folder / "train.py").stat().st_mtime_ns
    assert lines("pkg/model.py", folder) == ("a",)
    assert lines("./pkg/../train.py", folder) == ("one", "two")
    assert lines(str(folder / "train.py"), folder) == ("one", "two")


def test_the_first_folder_that_has_it_is_asked(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert lines("train.py", other, folder) == ("one", "two")
    (other / "train.py").write_text("other\n")
    assert lines("train.py", other, folder) == ("other",)


@pytest.mark.parametrize(
    "file",
    ["", ".", "..", "../secret.py", "pkg/../../secret.py", "../mine/../secret.py", "a\0b.py", "x" * 5000 + ".py",
     "gone.py", "pkg", "train.py/", "train.py/x.py", "/etc/passwd", "/etc/passwd.py", "~/secret.py", "file:///train.py",
     "\udcff.py", "//train.py"],
)  # fmt: skip
def test_what_is_not_a_file_below_the_folder_is_not_here(folder, file):
    assert why(file, folder) == NOT_HERE


def test_an_absolute_path_outside_is_not_here(folder, tmp_path):
    assert why(str(tmp_path / "secret.py"), folder) == NOT_HERE
    assert why(f"{folder}-2/train.py", folder) == NOT_HERE


def test_no_link_is_followed(folder, tmp_path):
    (folder / "leak.py").symlink_to(tmp_path / "secret.py")
    (folder / "up").symlink_to(tmp_path)
    (folder / "self.py").symlink_to("self.py")
    (folder / "same.py").symlink_to("train.py")
    for file in ("leak.py", "up/secret.py", "up/mine/train.py", "self.py", "same.py", str(folder / "leak.py")):
        assert why(file, folder) == NOT_HERE


def test_a_folder_that_is_itself_a_link_is_the_persons_own(folder, tmp_path):
    (tmp_path / "linked").symlink_to(folder)
    assert lines("train.py", tmp_path / "linked") == ("one", "two")
    assert lines(str(folder / "train.py"), tmp_path / "linked") == ("one", "two")


def test_only_python_files_are_read(folder):
    for name in (".env", "id_rsa", "train.pyc", "notes.txt"):
        (folder / name).write_text("secret\n")
        assert why(name, folder) == NOT_HERE


def test_a_large_file_is_not_read(folder):
    (folder / "exact.py").write_bytes(b"#" * MAX_BYTES)
    (folder / "large.py").write_bytes(b"#" * (MAX_BYTES + 1))
    with (folder / "sparse.py").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert MAX_BYTES == 400_000
    assert len(lines("exact.py", folder)[0]) == MAX_BYTES
    assert why("large.py", folder) == why("sparse.py", folder) == "the file is larger than 400 kB"


@pytest.mark.timeout(10)
def test_what_is_no_regular_file_is_not_here(folder):
    os.mkfifo(folder / "pipe.py")
    (folder / "folder.py").mkdir()
    assert why("pipe.py", folder) == why("folder.py", folder) == NOT_HERE


def test_a_binary_file_is_not_shown(folder):
    (folder / "latin.py").write_bytes(b"# \xff\xfe")
    (folder / "zero.py").write_bytes(b"a\0b")
    assert why("latin.py", folder) == "the file is not UTF-8 text"
    assert why("zero.py", folder) == "the file is not text"


def test_lines_are_counted_as_python_counts_them(folder):
    (folder / "odd.py").write_bytes("\ufeffa\x0cb\r\nc\u2028d\re\n\tf\n\u202eg\x1b[0m".encode())
    assert lines("odd.py", folder) == ("a\ufffdb", "c\ufffdd", "e", "    f", "\ufffdg\ufffd[0m")
    (folder / "empty.py").write_bytes(b"")
    assert lines("empty.py", folder) == ("",)


def test_an_unreadable_folder_is_not_here(tmp_path):
    assert why("train.py", tmp_path / "gone") == NOT_HERE
    (tmp_path / "file").write_text("")
    assert why("train.py", tmp_path / "file") == NOT_HERE


def test_the_folders_are_told_by_where_the_run_lies(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert _folders(tmp_path / "mine" / "runs" / "a") == [tmp_path / "mine", tmp_path]
    assert _folders(tmp_path / "mine" / "runs" / "a" / "ddp") == [tmp_path / "mine", tmp_path]
    assert _folders(tmp_path / "mine" / "runs" / "a" / "b" / "c") == [tmp_path]
    assert _folders(tmp_path / "a") == [tmp_path]


def test_a_run_below_the_root_does_not_open_the_whole_disk(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    root = tmp_path.parents[-1]
    assert _folders(root / "runs" / "a") == [tmp_path]
