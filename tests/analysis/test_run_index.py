import pytest
from builder import RunBuilder

from fsdp_profile.analysis.run_index import Saved, glance, read, saved_against_ddp
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy
from fsdp_profile.export.bundle import bundle_bytes


def built(path, strategy=Strategy.FSDP2, size=60, **manifest):
    run = RunBuilder(path.name, strategy=strategy, path=path).set(**manifest)
    return run.alloc(at=1, size=size).alloc(at=2, size=4, category=Category.UNKNOWN).build()


def test_a_run_is_told_at_a_glance_once_somebody_read_it(tmp_path):
    run = built(tmp_path / "one")
    before = glance(run.path)
    assert (before.is_read, before.peak_bytes, before.manifest) == (False, None, run.manifest)
    row = read(run.path)
    assert (row.is_read, row.peak_bytes, row.unknown_bytes, row.problem) == (True, 64, 4, "")
    assert glance(run.path) == row


def test_a_run_without_memory_is_read_and_has_no_peak(tmp_path):
    run = RunBuilder("bare", path=tmp_path / "bare").rank(0).build()
    assert (read(run.path).is_read, read(run.path).peak_bytes) == (True, None)


def test_a_bundle_is_read_when_asked_for(tmp_path):
    path = tmp_path / "one.fsdpz"
    path.write_bytes(bundle_bytes(built(tmp_path / "one")))
    assert glance(path).manifest is None
    assert (read(path).peak_bytes, read(path).manifest.name) == (64, "one")


@pytest.mark.parametrize("damaged", [layout.MANIFEST, "rank_00000/memory_samples.parquet"])
def test_a_damaged_run_says_what_is_wrong(tmp_path, damaged):
    run = built(tmp_path / "one")
    (run.path / damaged).write_bytes(b"{")
    row = read(run.path)
    assert damaged in row.problem
    assert (row.is_read, row.peak_bytes) == (False, None)


def test_saved_is_against_the_newest_ddp_run_that_differs_in_nothing_else(tmp_path):
    rows = [
        read(built(tmp_path / name, strategy, size, **manifest).path)
        for name, strategy, size, manifest in (
            ("old", Strategy.DDP, 796, {"created": "2026-01-01T00:00:00+00:00"}),
            ("new", Strategy.DDP, 396, {"created": "2026-02-01T00:00:00+00:00"}),
            ("cut", Strategy.DDP, 996, {"created": "2026-03-01T00:00:00+00:00", "complete": False}),
            ("fsdp", Strategy.FSDP2, 96, {}),
            ("other", Strategy.FSDP2, 96, {"script_args": ["--steps", "3"]}),
        )
    ]
    found = saved_against_ddp(rows)
    base = tmp_path / "new"
    assert found == {
        tmp_path / "fsdp": Saved(baseline=base, reduction_ratio=0.75),
        tmp_path / "old": Saved(baseline=base, reduction_ratio=-1.0),
        tmp_path / "cut": Saved(baseline=base, reduction_ratio=-1.5),
    }
