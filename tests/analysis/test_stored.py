"""Answers are kept beside a long run, and count only for the files and the release that gave them."""

import pytest
from builder import RunBuilder

from fsdp_profile import layout
from fsdp_profile.analysis import stored as module
from fsdp_profile.analysis.findings import findings
from fsdp_profile.analysis.ranks import RankSummary, rank_summaries
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.stored import stored
from fsdp_profile.analysis.why_not_smaller import Reason, why_not_smaller
from fsdp_profile.schema import Category


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(module, "LONG_BYTES", 1)
    builder = RunBuilder().unit("", sharded=4, unsharded=8).alloc(at=1, size=4, category=Category.BUCKET)
    return builder.alloc(at=2, free=5, size=2).build()


def ranks_of(run, question=rank_summaries):
    return stored(run, "ranks", question, type_=list[RankSummary])


def fails(run):
    raise AssertionError("asked anew")


def test_an_answer_is_kept_and_read_again_as_it_was(run):
    assert ranks_of(run) == rank_summaries(run)
    assert ranks_of(run, fails) == rank_summaries(run)
    assert stored(run, "why", why_not_smaller, type_=list[Reason]) == why_not_smaller(run)
    assert stored(run, "why", fails, type_=list[Reason]) == why_not_smaller(run)
    assert ranks_of(run, fails) == rank_summaries(run)


def test_findings_come_back_with_their_evidence(run):
    from fsdp_profile.analysis.finding import Finding

    assert findings(run)
    for question in (findings, fails):
        assert stored(run, "findings", question, type_=list[Finding]) == findings(run)


def test_files_that_have_changed_are_asked_anew(run):
    ranks_of(run)
    path = layout.table_path(run.path, 0, "units")
    path.write_bytes(path.read_bytes() + b" ")
    assert ranks_of(run, lambda run: []) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"release": 1}', b"\xff"])
def test_a_damaged_file_of_answers_is_made_anew(run, content):
    (run.path / layout.SUMMARY).write_bytes(content)
    assert ranks_of(run) == rank_summaries(run)
    assert ranks_of(run, fails) == rank_summaries(run)


def test_another_release_is_asked_anew(run, monkeypatch):
    ranks_of(run)
    monkeypatch.setattr(module, "__version__", "0.0.0")
    assert ranks_of(run, lambda run: []) == []


def test_a_short_run_keeps_nothing(run, monkeypatch):
    monkeypatch.setattr(module, "LONG_BYTES", 1 << 30)
    assert ranks_of(run) == rank_summaries(run)
    assert not (run.path / layout.SUMMARY).exists()
    assert [path.name for path in load_run(run.path).path.glob("*.json")] == ["manifest.json"]
