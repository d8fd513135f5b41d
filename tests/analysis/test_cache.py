"""Cached answers: the same as computed ones, and never older than what they were computed from."""

import shutil

import pytest
from builder import RunBuilder

from fsdp_profile.analysis import cache
from fsdp_profile.analysis.collectives import cross_rank_summary
from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary
from fsdp_profile.analysis.findings.questions import answers
from fsdp_profile.analysis.ranks import overview as ranks
from fsdp_profile.analysis.ranks.overview import rank_summaries, store_summaries
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.export.bundle import bundle_bytes


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.ENV_CACHE, str(tmp_path / "answers"))


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
    for module, name in ((ranks, "_of_tables"), (cross_rank_summary, "_of_tables")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *a, real=real, module=module: (found.append(module.__name__.split(".")[-2]), real(*a))[1],
        )
    return found


def test_what_is_read_back_is_what_was_computed(run, asked):
    first = rank_summaries(run), cross_rank_summary.cross_rank_summary(run), answers(run)
    assert asked == ["ranks", "ranks", "collectives"]
    again = load_run(run.path)
    assert (rank_summaries(again), cross_rank_summary.cross_rank_summary(again), answers(again)) == first
    assert len(asked) == 3
    assert first[0][0].peak.allocated_bytes == 4
    assert [(w.rank, w.wait_ns) for w in first[1].waits] == [(0, 2), (1, 0)]


@pytest.mark.parametrize("content", [b"", b"{", b'{"made_of": "x", "answer": 1}', b"\xff"])
def test_a_damaged_answer_is_made_again(run, asked, content):
    first = rank_summaries(run)
    (path,) = cache.cache_folder().rglob("rank_00000/summary.json")
    path.write_bytes(content)
    assert rank_summaries(run) == first
    assert asked == ["ranks", "ranks", "ranks"]


def test_looking_at_a_run_writes_nothing_into_it(run):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    first = rank_summaries(run), answers(run)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    assert (rank_summaries(run), answers(run)) == first


def test_a_summary_stored_in_the_run_is_read_wherever_the_run_is(run, asked, tmp_path):
    store_summaries(run)
    assert [path.name for path in sorted(run.path.rglob("*.json"))] == ["manifest.json", "summary.json", "summary.json"]
    asked.clear()
    moved = load_run(run.path.rename(tmp_path / "moved"))
    assert rank_summaries(moved)[0].peak.allocated_bytes == 4
    assert asked == []


def test_the_runs_unused_for_longest_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MAX_RUNS", 2)
    for number in range(4):
        run = RunBuilder(f"run{number}", path=tmp_path / f"run{number}").alloc(at=1, size=4).step(0, 0, 9).build()
        rank_summaries(run)
    assert len(list(cache.cache_folder().iterdir())) == 2


def test_other_tables_or_another_release_make_it_again(run, asked, monkeypatch):
    rank_summaries(run)
    builder = RunBuilder("kept", path=run.path).alloc(at=1, size=4).alloc(at=2, size=1 << 20).step(0, 0, 9)
    builder.build()
    assert rank_summaries(load_run(run.path))[0].peak.allocated_bytes == 4 + (1 << 20)
    assert asked.count("ranks") == 3
    monkeypatch.setattr(cache, "CACHE_VERSION", -1)
    rank_summaries(load_run(run.path))
    assert asked.count("ranks") == 5


def test_damaged_tables_are_an_error_whatever_was_kept(run):
    rank_summaries(run)
    layout.table_path(run.path, 0, "memory_samples").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="memory_samples"):
        rank_summaries(load_run(run.path))


def test_where_nothing_can_be_written_nothing_is_kept(run, asked, monkeypatch):
    monkeypatch.setattr(cache.Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only")))
    first = rank_summaries(run)
    assert rank_summaries(run) == first
    assert asked == ["ranks"] * 4
    assert not list(cache.cache_folder().rglob("*.json"))


def test_of_a_bundle_nothing_is_cached_and_it_holds_no_cached_answer(run, tmp_path):
    first = rank_summaries(run)
    store_summaries(run)
    path = tmp_path / "alone" / "one.fsdpz"
    path.parent.mkdir()
    path.write_bytes(bundle_bytes(run))
    shutil.rmtree(run.path)
    assert rank_summaries(load_run(path)) == first
    assert isinstance(cross_rank_summary.cross_rank_summary(load_run(path)), CrossRankSummary)
    assert [p.name for p in path.parent.iterdir()] == ["one.fsdpz"]
    assert b"summary.json" not in path.read_bytes()
