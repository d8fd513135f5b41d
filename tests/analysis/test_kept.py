"""Kept answers: the same as computed ones, and never older than what they were made of."""

import shutil

import pytest
from builder import RunBuilder

from fsdp_profile import layout
from fsdp_profile.analysis import across_summary, kept, ranks
from fsdp_profile.analysis.across_summary import AcrossSummary
from fsdp_profile.analysis.answers import answers
from fsdp_profile.analysis.ranks import rank_summaries
from fsdp_profile.analysis.run import load_run
from fsdp_profile.errors import InputError
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.schema import CollectiveKind


@pytest.fixture
def run(tmp_path):
    found = RunBuilder("kept", path=tmp_path / "kept").rank(0).alloc(at=1, size=4).step(0, 0, 9)
    for rank, start in ((0, 2), (1, 4)):
        found.rank(rank).collective(CollectiveKind.ALL_GATHER, start, 8, size_bytes=4, group="0", sequence=1)
    return found.build()


@pytest.fixture
def asked(monkeypatch):
    """Names of the answers that were computed."""
    found = []
    for module, name in ((ranks, "_of_tables"), (across_summary, "_of_tables")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, real=real, module=module: (found.append(module.__name__[-5:]), real(*a))[1]
        )
    return found


def test_what_is_read_back_is_what_was_computed(run, asked):
    first = rank_summaries(run), across_summary.across_summary(run), answers(run)
    assert asked == ["ranks", "ranks", "mmary"]
    again = load_run(run.path)
    assert (rank_summaries(again), across_summary.across_summary(again), answers(again)) == first
    assert len(asked) == 3
    assert first[0][0].peak.allocated_bytes == 4
    assert [(w.rank, w.wait_ns) for w in first[1].waits] == [(0, 2), (1, 0)]


@pytest.mark.parametrize("content", [b"", b"{", b'{"made_of": "x", "answer": 1}', b"\xff"])
def test_a_damaged_answer_is_made_again(run, asked, content):
    first = rank_summaries(run)
    path = layout.rank_dir(run.path, 0) / "kept_summary.json"
    path.write_bytes(content)
    assert rank_summaries(run) == first
    assert asked == ["ranks", "ranks", "ranks"]


def test_nothing_is_kept_in_the_installed_package(run, monkeypatch):
    """Uninstalling removes what was installed, and would leave the folders of the sample runs with these files."""
    monkeypatch.setattr(kept, "_PACKAGE", run.path.parent)
    first = rank_summaries(run), answers(run)
    assert not list(run.path.rglob("kept_*"))
    assert (rank_summaries(run), answers(run)) == first


def test_other_tables_or_another_release_make_it_again(run, asked, monkeypatch):
    rank_summaries(run)
    builder = RunBuilder("kept", path=run.path).alloc(at=1, size=4).alloc(at=2, size=1 << 20).step(0, 0, 9)
    builder.build()
    assert rank_summaries(load_run(run.path))[0].peak.allocated_bytes == 4 + (1 << 20)
    assert asked.count("ranks") == 3
    monkeypatch.setattr(kept, "_code_digest", lambda: "another")
    rank_summaries(load_run(run.path))
    assert asked.count("ranks") == 5


def test_damaged_tables_are_an_error_whatever_was_kept(run):
    rank_summaries(run)
    layout.table_path(run.path, 0, "memory_samples").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="memory_samples"):
        rank_summaries(load_run(run.path))


def test_where_nothing_can_be_written_nothing_is_kept(run, asked, monkeypatch):
    monkeypatch.setattr(kept.Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only")))
    first = rank_summaries(run)
    assert rank_summaries(run) == first
    assert asked == ["ranks"] * 4
    assert not list(run.path.rglob("kept_*"))


def test_of_a_recording_whose_tables_lie_in_memory_nothing_is_kept(tmp_path):
    tables = [layout.table_path(tmp_path / "growing", 0, "steps")]
    for answer in (1, 2):
        assert kept.kept(tmp_path / "kept_x.json", int, made_of=tables, compute=lambda answer=answer: answer) == answer
    assert not (tmp_path / "kept_x.json").exists()


def test_a_bundle_keeps_nothing_and_holds_no_kept_answer(run, tmp_path):
    first = rank_summaries(run)
    assert list(run.path.rglob("kept_*"))
    path = tmp_path / "alone" / "one.fsdpz"
    path.parent.mkdir()
    path.write_bytes(bundle_bytes(run))
    shutil.rmtree(run.path)
    assert rank_summaries(load_run(path)) == first
    assert isinstance(across_summary.across_summary(load_run(path)), AcrossSummary)
    assert [p.name for p in path.parent.iterdir()] == ["one.fsdpz"]
    assert b"kept_" not in path.read_bytes()
