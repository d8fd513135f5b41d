"""Imported Kineto traces: collectives, clocks and groups."""

import json

from ingest.imported.importing import BASE_NS, US, imported, pair

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.schema import Strategy


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
    found = cross_rank(run)
    assert (found.num_matched, found.clock.offset_ns) == (2, {0: 0, 1: 0})
    assert found.calls.column("wait_ns").to_pylist() == [US, 0, US, 0]
    assert found.collectives.column("transfer_ns").to_pylist() == [100 * US, 60 * US]
    assert [(s.rank, s.times_last, s.wait_caused_ns) for s in found.stragglers] == [(1, 2, 2 * US)]


def test_another_base_time_is_another_clock(kineto_cases, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "12-base"))
    starts = [run.table("steps", rank=rank).column("start_ns")[0].as_py() for rank in (0, 1)]
    assert starts[1] - starts[0] == 1_500_000_000
    found = cross_rank(run)
    assert (found.num_matched, found.clock.offset_ns, found.clock.residual_ns) == (2, {0: 0, 1: 1_500_000_000}, 0)


def test_absolute_times_and_a_base_time_are_one_axis(kineto_cases, tmp_path):
    run = imported(tmp_path, *pair(kineto_cases, "13-no-base"))
    starts = [run.table("steps", rank=rank).column("start_ns")[0].as_py() for rank in (0, 1)]
    assert starts == [BASE_NS + 1000 * US, BASE_NS + 1001 * US]
    assert cross_rank(run).collectives.column("wait_ns").to_pylist() == [US, US]
    name = "13-no-base-time-absolute-us-rank0.json"
    assert f"rank 0: {name}: us precision only: times are whole microseconds" in run.manifest.warnings


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
    found = cross_rank(imported(tmp_path, *files))
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
    two = cross_rank(imported(tmp_path / "two", *files[:2]))
    assert (two.num_matched, two.unmatched) == (1, {"recorded on one of its ranks only": 2})


def test_gloo_carries_reduce_scatters_as_all_reduces(kineto_cases, tmp_path):
    run = imported(tmp_path, kineto_cases / "26-cpu-gloo-only.json")
    assert run.manifest.device_type == "cpu"
    rows = run.table("collectives", rank=0).to_pylist()
    assert [(r["kind"], r["end_ns"] - r["start_ns"], r["transport"]) for r in rows] == [
        ("ALL_GATHER", 20 * US, "gloo:all_gather"), ("REDUCE_SCATTER", 25 * US, "gloo:all_reduce"),
    ]  # fmt: skip
