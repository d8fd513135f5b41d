"""`fsdp-profile import`, from files to numbers, on the small files that real readers get wrong."""

import json
import pickle
from pathlib import Path

import pytest
from ingest.kineto.kineto_factory import document, kernel, launch, timed

from fsdp_profile.analysis.collectives.cross_rank import across_ranks
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.commands import main
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.snapshot.safe_pickle import load_plain

MIB, US = 1 << 20, 1_000
BASE_NS = 1_790_857_026_000_000_000
NO_STEP = "no ProfilerStep annotation; the whole recording is taken as step 0"


def imported(tmp_path: Path, *paths: Path) -> Run:
    """The run that the files become."""
    folder = tmp_path / "imported"
    assert main(["import", *map(str, paths), "-o", str(folder)]) == 0
    return load_run(folder)


def refused(capsys, tmp_path: Path, *paths: Path) -> str:
    """The one line with which the import ends; nothing is left behind."""
    folder = tmp_path / "refused"
    assert main(["import", *map(str, paths), "-o", str(folder)]) == 2
    done = capsys.readouterr()
    assert (done.out, done.err.count("\n"), folder.exists()) == ("", 1, False)
    return done.err.removeprefix("fsdp-profile: ").rstrip("\n")


def pair(cases: Path, name: str) -> list[Path]:
    found = sorted(cases.glob(f"{name}*"))
    assert len(found) == 2
    return found


def test_two_good_traces(kineto_cases, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "00-good"))
    assert (run.ranks, run.manifest.world_size, run.manifest.device_type) == ((0, 1), 2, "cuda")
    assert (run.manifest.strategy, run.manifest.complete) == (Strategy.FSDP2, True)
    for rank in run.ranks:
        rows = run.table("collectives", rank=rank).to_pylist()
        assert [(r["kind"], r["end_ns"] - r["start_ns"], r["size_bytes"]) for r in rows] == [
            ("ALL_GATHER", 100 * US, 2048), ("REDUCE_SCATTER", 60 * US, 2048),
        ]  # fmt: skip
        assert [r["issue_ns"] - BASE_NS for r in rows] == [(1002 + rank) * US, (1230 + rank) * US]
        assert (rows[0]["group"], rows[0]["group_description"], rows[0]["group_size"]) == ("0", "default_pg", 2)
        [gemm] = run.table("kernels", rank=rank).to_pylist()
        assert (gemm["name"], gemm["end_ns"] - gemm["start_ns"]) == ("toy_gemm_128x128_nn", 80 * US)
        [unit] = unit_summaries(run, rank=rank)
        assert (unit.name, unit.numel, unit.unsharded_bytes, unit.sharded_bytes) == ("layers.0", 1024, 2048, 1024)
        assert (unit.num_gathers, unit.all_gather_ns) == (1, 100 * US)
        summary = collective_summary(run, rank=rank)
        assert (summary.total_ns, summary.exposed_ns) == (160 * US, 160 * US)
    found = across_ranks(run)
    assert (found.num_matched, found.clock.offset_ns) == (2, {0: 0, 1: 0})
    assert found.calls.column("wait_ns").to_pylist() == [US, 0, US, 0]
    assert found.collectives.column("transfer_ns").to_pylist() == [100 * US, 60 * US]
    assert [(s.rank, s.times_last, s.wait_caused_ns) for s in found.stragglers] == [(1, 2, 2 * US)]


def test_another_base_time_is_another_clock(kineto_cases, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "12-base"))
    starts = [run.table("steps", rank=rank).column("start_ns")[0].as_py() for rank in (0, 1)]
    assert starts[1] - starts[0] == 1_500_000_000
    found = across_ranks(run)
    assert (found.num_matched, found.clock.offset_ns, found.clock.residual_ns) == (2, {0: 0, 1: 1_500_000_000}, 0)


def test_absolute_times_and_a_base_time_are_one_axis(kineto_cases, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "13-no-base"))
    starts = [run.table("steps", rank=rank).column("start_ns")[0].as_py() for rank in (0, 1)]
    assert starts == [BASE_NS + 1000 * US, BASE_NS + 1001 * US]
    assert across_ranks(run).collectives.column("wait_ns").to_pylist() == [US, US]
    name = "13-no-base-time-absolute-us-rank0.json"
    assert f"rank 0: {name}: us precision only: times are whole microseconds" in run.manifest.warnings


def test_content_beats_the_name(kineto_cases, tmp_path):
    files = pair(kineto_cases, "17-names")
    run = imported(tmp_path, *files)
    assert [(i["rank"], i["file"]) for i in run.manifest.extra["imported"]] == [(0, files[0].name), (1, files[1].name)]
    assert f"rank 1: {files[1].name}: rank 1 by content; file name says 0, which is not used" in run.manifest.warnings


def test_a_list_without_rank_gets_one_by_order(kineto_cases, tmp_path):
    path = kineto_cases / "21-top-level-list-string-pids.json"
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert run.ranks == (0, 1)
    assert f"rank 1: {path.name}: rank assumed: 1, by order; neither its content nor its name has a rank" in (
        run.manifest.warnings
    )
    assert run.table("collectives", rank=1).num_rows == 0
    assert any("array format" in warning for warning in run.manifest.warnings)


def test_files_without_rank_take_the_free_ones(kineto_cases, tmp_path):
    nameless = tmp_path / "second.json"
    nameless.write_bytes((kineto_cases / "15-no-distributedInfo.json").read_bytes())
    run = imported(tmp_path, kineto_cases / "15-no-distributedInfo.json", nameless, kineto_cases / "00-good-rank1.json")
    assert {i["rank"]: i["file"] for i in run.manifest.extra["imported"]} == {
        0: "15-no-distributedInfo.json", 1: "00-good-rank1.json", 2: "second.json",
    }  # fmt: skip


def test_two_files_of_one_rank_are_refused_by_name(kineto_cases, capsys, tmp_path):
    first, second = kineto_cases / "00-good-rank0.json", kineto_cases / "12-base-time-differs-rank0.json"
    line = refused(capsys, tmp_path, first, second)
    assert line == f"{first} and {second}: both are the trace of rank 0; import one of them at a time"


def test_a_mixed_file_is_left_out_and_the_rest_is_kept(kineto_cases, capsys, tmp_path):
    path = kineto_cases / "28-two-ranks-wrote-one-file.json"
    assert refused(capsys, tmp_path, path).startswith(f"{path}: two traces are mixed in this file")
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert (run.ranks, run.manifest.complete) == ((0,), False)
    assert any(w.startswith(f"not imported: {path}: two traces are mixed") for w in run.manifest.warnings)


@pytest.mark.parametrize("name", ["25-metadata-only.json", "33-empty-file.json"])
def test_nothing_usable_is_one_line(kineto_cases, capsys, tmp_path, name):
    path = kineto_cases / name
    assert refused(capsys, tmp_path, path).startswith(f"{path}: ")
    assert refused(capsys, tmp_path, path, path.with_name("28-two-ranks-wrote-one-file.json")).endswith(
        "(2 files, none usable)"
    )


def test_a_truncated_trace_keeps_its_whole_events_and_an_incomplete_step(kineto_cases, tmp_path):
    run = imported(tmp_path, kineto_cases / "04-truncated-mid-event.json")
    assert not run.manifest.complete
    assert run.table("steps", rank=run.ranks[0]).column("complete").to_pylist() == [False]
    assert any("truncated" in warning for warning in run.manifest.warnings)


def test_groups_of_two_meshes_do_not_pair_ranks_that_share_none(kineto_cases, tmp_path):
    """Rank 0 from the case; ranks 1 to 3 as they would have written theirs."""
    case = json.loads((kineto_cases / "32-process-groups-two-meshes.json").read_text())
    files = [kineto_cases / "32-process-groups-two-meshes.json"]
    groups = {1: (("6", [1, 3]), ("7", [0, 1])), 2: (("5", [0, 2]), ("8", [2, 3])), 3: (("6", [1, 3]), ("8", [2, 3]))}
    for rank, ((dp, dp_ranks), (tp, tp_ranks)) in groups.items():
        copy = json.loads(json.dumps(case))
        copy["distributedInfo"]["rank"] = rank
        for config, name, ranks in zip(copy["distributedInfo"]["pg_config"][1:], (dp, tp), (dp_ranks, tp_ranks),
                                       strict=True):  # fmt: skip
            config.update(pg_name=name, ranks=ranks)
        for event, name in zip(copy["traceEvents"], (dp, tp), strict=True):
            event["args"]["Process Group Name"] = name
            event["ts"] += 3 * rank
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_text(json.dumps(copy))
    found = across_ranks(imported(tmp_path, *files))
    rows = {row["collective"]: row for row in found.collectives.to_pylist()}
    ranks = {}
    for call in found.calls.to_pylist():
        ranks.setdefault(call["collective"], []).append(call["rank"])
    who = {(rows[c]["kind"], rows[c]["group"], rows[c]["group_description"]): r for c, r in ranks.items()}
    assert who == {
        ("ALL_GATHER", "5", "mesh_dp"): [0, 2], ("ALL_GATHER", "6", "mesh_dp"): [1, 3],
        ("ALL_REDUCE", "7", "mesh_tp"): [0, 1], ("ALL_REDUCE", "8", "mesh_tp"): [2, 3],
    }  # fmt: skip
    assert sorted(rows[c]["wait_ns"] for c in ranks) == [3 * US, 3 * US, 6 * US, 6 * US]
    two = across_ranks(imported(tmp_path / "two", *files[:2]))
    assert (two.num_matched, two.unmatched) == (1, {"recorded on one of its ranks only": 2})


def test_gloo_carries_reduce_scatters_as_all_reduces(kineto_cases, tmp_path):
    run = imported(tmp_path, kineto_cases / "26-cpu-gloo-only.json")
    assert run.manifest.device_type == "cpu"
    rows = run.table("collectives", rank=0).to_pylist()
    assert [(r["kind"], r["end_ns"] - r["start_ns"], r["transport"]) for r in rows] == [
        ("ALL_GATHER", 20 * US, "gloo:all_gather"), ("REDUCE_SCATTER", 25 * US, "gloo:all_reduce"),
    ]  # fmt: skip


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


def test_steps_and_phases_by_annotations(tmp_path):
    """Two steps; the second one's last kernel runs after its end. The backward recomputes a forward."""
    note = {"cat": "user_annotation"}
    events = [
        timed("aten::empty", 0, 5),
        timed("ProfilerStep#7", 10, 100, **note), timed("ProfilerStep#8", 110, 90, **note),
        timed("DistributedDataParallel.forward", 20, 20, **note),
        timed("autograd::engine::evaluate_function: AddBackward", 50, 10, tid=9),
        timed("autograd::engine::evaluate_function: MmBackward", 62, 18, tid=9),
        timed("DistributedDataParallel.forward", 65, 5, tid=9, **note),
        timed("Optimizer.step#AdamW.step", 90, 15, **note),
        launch(25, 1), kernel("gemm", 30, 10, correlation=1),
        launch(195, 2), kernel("late", 230, 10, correlation=2),
    ]  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document(events, distributedInfo={"rank": 0, "world_size": 1})))
    run = imported(tmp_path, path)
    steps = [(r["step"], (r["start_ns"] - BASE_NS) // US, (r["end_ns"] - BASE_NS) // US, r["complete"])
             for r in run.table("steps", rank=0).to_pylist()]  # fmt: skip
    assert steps == [(-1, 0, 10, True), (7, 10, 110, True), (8, 110, 200, True), (-2, 200, 240, False)]
    phases = [(r["step"], r["phase"], (r["start_ns"] - BASE_NS) // US) for r in run.table("phases", rank=0).to_pylist()]
    assert phases == [
        (-1, "SETUP", 0), (7, "OTHER", 10), (7, "FORWARD", 20), (7, "BACKWARD", 50), (7, "OTHER", 80),
        (7, "OPTIMIZER", 90), (7, "OTHER", 105), (8, "OTHER", 110), (-2, "OTHER", 200),
    ]  # fmt: skip
    kernels = run.table("kernels", rank=0).to_pylist()
    assert [(r["name"], r["step"]) for r in kernels] == [("gemm", 7), ("late", 8)]
    assert run.manifest.ranks[0].num_steps == 2


def test_fsdp2_annotations_name_units_and_what_they_did(tmp_path):
    note = {"cat": "user_annotation"}
    events = [
        timed("FSDP::root_pre_forward", 0, 2, **note),
        timed("FSDP::pre_forward", 2, 18, **note), timed("FSDP::all_gather", 3, 7, **note),
        timed("FSDP::pre_forward (layers.0)", 30, 20, **note), timed("FSDP::all_gather (layers.0)", 31, 9, **note),
        timed("FSDP::all_gather_copy_out (layers.0)", 42, 6, **note),
        timed("FSDP::post_forward (layers.0)", 80, 5, **note),
        timed("FSDP::pre_backward (layers.0)", 100, 5, **note),
        timed("FSDP::post_backward_reduce (layers.0)", 140, 10, **note),
    ]  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document(events, distributedInfo={"rank": 0, "world_size": 2})))
    run = imported(tmp_path, path)
    assert run.table("units", rank=0).column("name").to_pylist() == ["", "layers.0"]
    spans = [(r["unit"], r["kind"], (r["start_ns"] - BASE_NS) // US, (r["end_ns"] - BASE_NS) // US)
             for r in run.table("unit_spans", rank=0).to_pylist()]  # fmt: skip
    assert spans == [
        (0, "ALL_GATHER", 3, 10), (1, "FORWARD", 30, 85), (1, "ALL_GATHER", 31, 40), (1, "COPY_OUT", 42, 48),
        (1, "BACKWARD", 100, 140), (1, "REDUCE", 140, 150),
    ]  # fmt: skip


def test_files_of_jobs_of_different_sizes_are_told(kineto_cases, tmp_path):
    other = json.loads((kineto_cases / "00-good-rank1.json").read_text())
    other["distributedInfo"]["world_size"] = 16
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    run = imported(tmp_path, kineto_cases / "00-good-rank0.json", path)
    assert run.manifest.warnings[0] == (
        "world sizes differ (rank 0 of 2, rank 1 of 16): these files may be of different jobs"
    )


def test_the_run_directory_is_new(kineto_cases, capsys, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    path = str(kineto_cases / "00-good-rank0.json")
    assert main(["import", path, "-o", str(tmp_path)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]
    assert main(["import", str(tmp_path / "absent.json"), "-o", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == f"fsdp-profile: {tmp_path / 'absent.json'}: no such file\n"
    assert main(["import", path, "-o", str(tmp_path / "named"), "--name", "mine"]) == 0
    assert load_run(tmp_path / "named").name == "mine"


def test_every_page_of_an_import_can_be_shown(kineto_cases, snapshot_cases, capsys, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "00-good"), snapshot_cases / "50-snap-good.pickle")
    for section in ([], ["memory"], ["units"], ["collectives"], ["ranks"]):
        assert main(["show", str(run.path), *section]) == 0
    assert "not told: 2 ranks imported" in capsys.readouterr().out
    assert main(["show", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["across_ranks"]["matched"] == 2
    assert found["across_ranks"]["clock"]["offset_ns"] == {"0": 0, "1": 0}
    assert found["across_ranks"]["stragglers"][0]["rank"] == 1
    assert found["across_ranks"]["by_kind"]["ALL_GATHER"] == {
        "matched": 1, "wait_ns": US, "transfer_ns": 100 * US, "busbw_bytes_per_s": 2048 / 1e-4 / 2,
    }  # fmt: skip


def test_a_folder_stands_for_the_files_in_it(kineto_cases, capsys, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for path in pair(kineto_cases, "00-good"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "notes.txt").write_text("not a trace")
    assert imported(tmp_path, folder).ranks == (0, 1)
    capsys.readouterr()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(capsys, tmp_path, empty) == (
        f"{empty}: no .json, .json.gz, .pickle, .pickle.gz, .pkl, .pkl.gz in this folder; give the files themselves"
    )


def test_the_rank_that_the_user_tells_wins(kineto_cases, capsys, tmp_path):
    path = kineto_cases / "00-good-rank1.json"
    folder = tmp_path / "run"
    assert main(["import", str(path), "-o", str(folder), "--rank", "5"]) == 0
    run = load_run(folder)
    assert (run.ranks, run.manifest.world_size) == ((5,), 6)
    assert f"rank 5: {path.name}: taken as rank 5, as given; the file says rank 1" in run.manifest.warnings
    capsys.readouterr()
    two = [str(p) for p in pair(kineto_cases, "00-good")]
    assert main(["import", *two, "--rank", "5", "-o", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == "fsdp-profile: --rank 5 is for one trace and one snapshot; 2 files were given\n"
    assert main(["import", two[0], "--rank", "-1", "-o", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()


def test_what_is_told_of_several_ranks_is_one_warning_and_how_they_ended_is_not_known(kineto_cases, tmp_path):
    nameless = tmp_path / "second.json"
    nameless.write_bytes((kineto_cases / "15-no-distributedInfo.json").read_bytes())
    run = imported(tmp_path, kineto_cases / "15-no-distributedInfo.json", nameless)
    assert f"ranks 0-1: {NO_STEP}" in run.manifest.warnings
    assert {record.ending for record in run.manifest.ranks} == {Ending.IMPORTED}
    assert [unit.num_reshards for unit in unit_summaries(run, rank=0)] == [None]
