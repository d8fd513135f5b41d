"""Imported memory snapshots: a ledger that adds up."""

import pickle

import pytest
from ingest.imported.importing import MIB, imported, pair, refused

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest.snapshot.safe_pickle import load_plain

PEAKS = {
    "50-snap-good.pickle": (6, 8), "51-snap-no-device-traces.pickle": (2, 8),
    "52-snap-bare-segment-list.pickle": (2, 8), "54-snap-free-without-alloc.pickle": (4, 8),
    "56-snap-protocol5.pickle": (6, 8), "59-snap-expandable-segment-map.pickle": (3, 4),
    "61-snap-oom-entry.pickle": (2, 8), "63-snap-unknown-action-and-keys.pickle": (2, 8),
    "66-snap-private-pool-and-streams.pickle": (1, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", PEAKS)
def test_snapshots_become_a_ledger_that_adds_up(snapshot_cases, tmp_path, name):
    run = imported(tmp_path, snapshot_cases / name)
    peak = ledger.peak(run, rank=0)
    assert (peak.allocated_bytes // MIB, ledger.reserved_peak_bytes(run, rank=0) // MIB) == PEAKS[name]
    assert peak.by_category == {Category.UNKNOWN: peak.allocated_bytes}
    assert ledger.conservation(run, rank=0).category_errors == 0
    assert any("rank assumed: 0, by order" in warning for warning in run.manifest.warnings)


def test_what_snapshots_lack_is_said(snapshot_cases, tmp_path):
    names = ("51-snap-no-device-traces.pickle", "61-snap-oom-entry.pickle", "63-snap-unknown-action-and-keys.pickle")
    warnings = "\n".join(imported(tmp_path, *(snapshot_cases / name for name in names)).manifest.warnings)
    assert "rank 0: 51-snap-no-device-traces.pickle: no timeline: history was not recorded" in warnings
    assert "rank 1: 61-snap-oom-entry.pickle: out of memory: 67,108,864 bytes asked" in warnings
    assert "2,097,152 allocated and 3,145,728 free" in warnings
    assert "rank 2: 63-snap-unknown-action-and-keys.pickle: events with unknown actions, ignored: 1" in warnings


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("65-snap-truncated.pickle", "truncated, the file ends too early"),
        ("67-snap-pickle-with-call.pickle", "refused: it asks for 'posix.system'"),
        ("68-snap-not-a-snapshot.pickle", "not an allocator snapshot"),
    ],
)
def test_a_pickle_that_is_no_snapshot_is_one_line(snapshot_cases, capsys, tmp_path, name, why):
    path = snapshot_cases / name
    line = refused(capsys, tmp_path, path)
    assert line.startswith(f"{path}: {why}")
    assert "FSDP_PROFILE_RAN_CODE" not in line


def test_a_trace_and_a_snapshot_a_rank(kineto_cases, snapshot_cases, tmp_path):
    files = [*pair(kineto_cases, "00-good")]
    for rank in (1, 0):
        files.append(tmp_path / f"snapshot_rank{rank}.pickle")
        files[-1].write_bytes((snapshot_cases / "50-snap-good.pickle").read_bytes())
    run = imported(tmp_path, *files)
    assert run.ranks == (0, 1)
    for rank in run.ranks:
        assert ledger.peak(run, rank=rank).allocated_bytes == 6 * MIB
        assert run.table("collectives", rank=rank).num_rows == 2
        assert run.table("steps", rank=rank).column("recorded").to_pylist() == [True]


def test_annotations_of_a_snapshot_name_categories_units_and_steps(snapshot_cases, tmp_path):
    snapshot = load_plain(snapshot_cases / "50-snap-good.pickle")
    t0_us = snapshot["device_traces"][0][0]["time_us"]
    step, gather = "ProfilerStep#3", "FSDP::all_gather (layers.0)"
    marks = [(0, step, "START"), (4, gather, "START"), (6, gather, "END"), (20, step, "END")]
    snapshot["external_annotations"] = [
        {"name": name, "stage": stage, "time_us": t0_us + at, "device": 0} for at, name, stage in marks
    ]
    path = tmp_path / "annotated.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    run = imported(tmp_path, path)
    peak = ledger.peak(run, rank=0)
    assert (peak.allocated_bytes, peak.step) == (6 * MIB, 3)
    assert peak.by_category == {Category.ALL_GATHER: 4 * MIB, Category.UNKNOWN: 2 * MIB}
    rows = run.table("allocations", rank=0).to_pylist()
    assert [(r["category"], r["basis"], r["unit"]) for r in rows] == [
        ("UNKNOWN", "NONE", -1),
        ("ALL_GATHER", "REGION", 0),
    ]
    assert run.table("units", rank=0).column("name").to_pylist() == ["layers.0"]
