"""The registry of export formats, and what both its readers make of it."""

import pytest
from recording import ROOT

from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import build_parser
from fsdp_profile.export.formats import FORMATS, Options, format_of

STARTS = {
    ".fsdpz": b"PK", ".html": b"<!doctype html>", ".json": b"{", ".json.gz": b"\x1f\x8b", ".csv": b'"rank"',
    ".parquet": b"PAR1", ".md": b"# gpt-ddp-2ranks", ".svg": b"<svg",
}  # fmt: skip


@pytest.mark.parametrize("found", FORMATS, ids=lambda found: found.ending)
def test_every_format_writes_its_kind_of_file(found):
    run = load_run(ROOT / "sample_runs" / "gpt-ddp-2ranks")
    assert found.write([run], Options()).startswith(STARTS[found.ending])


def test_a_file_has_the_format_of_its_longest_ending():
    assert [format_of(f"a{found.ending}") for found in FORMATS] == list(FORMATS)
    assert format_of("a.gz") is None


def test_the_command_line_and_the_share_page_offer_the_formats_of_the_registry():
    queries = pytest.importorskip("fsdp_dashboard.views.share.queries")
    assert list(queries.FORMATS) == [found.ending for found in FORMATS if found.title]
    actions = build_parser()._subparsers._group_actions[0].choices["export"].format_help().split()
    assert all(found.ending in " ".join(actions) for found in FORMATS)
    assert set().union(*(found.options for found in FORMATS)) <= set(Options.__slots__)
