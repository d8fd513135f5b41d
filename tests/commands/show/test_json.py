import json

from builder import RunBuilder
from commands.show.showing import shown
from render.terminal.samples import fsdp2_run

from fsdp_profile.commands import main
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import SETUP_STEP, CollectiveKind, Phase, SpanKind


def test_json_has_the_keys_other_programs_rely_on(capsys, tmp_path):
    document = json.loads(shown(capsys, fsdp2_run(tmp_path).path, "--json"))
    keys = {
        "": {"schema", "run", "ranks", "units", "in_flight", "collectives", "findings", "receipt", "not_recorded"},
        "run": {"name", "strategy", "world_size", "device_type", "torch", "complete"},
        "ranks": {"rank", "peak", "reserved_peak_bytes", "device_used_peak_bytes", "setup_peak_bytes"},
        "units": {
            "name", "numel", "sharded_bytes", "unsharded_bytes", "num_gathers", "num_reshards", "gathered_ns",
            "all_gather_ns", "reduce_scatter_ns", "exposed_ns",
        },
        "collectives": {"total_ns", "exposed_ns", "overlapped_ns", "by_kind", "per_step"},
    }  # fmt: skip
    for place, expected in keys.items():
        found = document[place] if place else document
        for item in found if isinstance(found, list) else [found]:
            assert expected <= set(item), place
    assert {"allocated_bytes", "step", "phase", "unit", "t_ns", "by_category", "unknown_ratio"} <= set(
        document["ranks"][0]["peak"]
    )
    assert document["collectives"]["by_kind"]["ALL_GATHER"].keys() == {"count", "bytes", "ns", "exposed_ns"}


def test_json_of_a_small_run_is_this_document(capsys, tmp_path):
    run = (
        RunBuilder("tiny", path=tmp_path / "tiny")
        .set(
            command=["fsdp-profile", "run", "train.py"],
            strategy_detail="FSDP2",
            sources={"units": "recorded"},
        )
        .step(SETUP_STEP, 0, 10)
        .step(0, 10, 100)
        .phase(Phase.SETUP, 0, 10, step=SETUP_STEP)
        .phase(Phase.FORWARD, 10, 100)
        .unit("layers.0", numel=8, sharded=16, unsharded=32)
        .span(0, SpanKind.ALL_GATHER, 12, 14)
        .span(0, SpanKind.UNSHARDED, 12, 40)
        .span(0, SpanKind.RESHARD, 40, 41)
        .collective(CollectiveKind.ALL_GATHER, 12, 22, unit=0, size_bytes=32)
        .kernel(20, 30)
        .alloc(at=1, size=16, category=Category.PARAM)
        .alloc(at=13, size=32, category=Category.UNSHARDED_PARAM, unit=0)
        .build()
    )
    document = json.loads(shown(capsys, run.path, "--json"))
    found = document.pop("findings")
    assert [f["rule"] for f in found] == ["kept-unsharded", "too-few-ranks"]
    assert found[1] == {
        "rule": "too-few-ranks",
        "severity": "EXPLAINS",
        "claim": "Over 2 ranks sharding saves 16 B of states and needs 32 B of gathered parameters and buffers at the "
        "peak.",
        "evidence": {"shard_size": 2, "saved_bytes": 16, "transient_bytes": 32},
        "action": "Smaller units make the second number smaller; more ranks make the first one larger.",
        "saves_bytes": None,
        "saves_ns": None,
        "is_estimate": True,
        "rank": 0,
        "unit": None,
    }
    assert [test["is_reason"] for test in document.pop("why_not_smaller")] == [None, False, True, True]
    assert document == {
        "schema": "2.0",
        "run": {
            "name": "tiny",
            "strategy": "FSDP2",
            "strategy_detail": "FSDP2",
            "world_size": 1,
            "device_type": "cpu",
            "device_name": "",
            "torch": "2.13.0",
            "complete": True,
            "created": "2026-01-02T03:04:05+00:00",
            "command": ["fsdp-profile", "run", "train.py"],
            "model": {
                "name": "GPT",
                "numel": 100,
                "trainable_numel": 0,
                "num_params": 4,
                "param_bytes": 400,
                "dtypes": {"float32": 100},
            },
            "sources": {"units": "recorded"},
        },
        "ranks": [
            {
                "rank": 0,
                "peak": {
                    "allocated_bytes": 48,
                    "step": 0,
                    "phase": "FORWARD",
                    "unit": "layers.0",
                    "t_ns": 13,
                    "by_category": {"UNSHARDED_PARAM": 32, "PARAM": 16},
                    "unknown_ratio": 0.0,
                },
                "setup_peak_bytes": 16,
                "reserved_peak_bytes": None,
                "device_used_peak_bytes": None,
                "host_rss_peak_bytes": None,
                "waterfall": None,
                "host_states": None,
                "source_lines": None,
                "modules": None,
                "peak_of_phases": {
                    "SETUP": {"allocated_bytes": 16, "step": -1, "t_ns": 1},
                    "FORWARD": {"allocated_bytes": 48, "step": 0, "t_ns": 13},
                },
                "num_steps": 1,
                "median_step_ns": None,
                "ending": "COMPLETED",
                "exit_code": 0,
                "conservation": {"num_events": 2, "category_errors": 0, "reported_errors": 0},
            }
        ],
        "reported_rank": 0,
        "units": [
            {
                "name": "layers.0",
                "kind": "FSDP2",
                "numel": 8,
                "sharded_bytes": 16,
                "unsharded_bytes": 32,
                "shard_size": 2,
                "replicate_size": 1,
                "num_gathers": 1,
                "num_reshards": 1,
                "gathered_ns": 28,
                "all_gather_ns": 10,
                "reduce_scatter_ns": 0,
                "exposed_ns": 8,
            }
        ],
        "in_flight": [
            {
                "phase": "FORWARD",
                "step": 0,
                "max_gathered": 1,
                "gathered_bytes": 32,
                "units": ["layers.0"],
                "max_ahead": 1,
                "ahead_bytes": 32,
                "held_bytes": 32,
            }
        ],
        "collectives": {
            "total_ns": 10,
            "exposed_ns": 8,
            "overlapped_ns": 2,
            "by_kind": {"ALL_GATHER": {"count": 1, "bytes": 32, "ns": 10, "exposed_ns": 8}},
            "per_step": {"size_bytes": 32, "wire_bytes": 16, "num_steps": 1, "num_unknown": 0},
            "by_group": [
                {
                    "group": "",
                    "group_description": "",
                    "group_size": 2,
                    "count": 1,
                    "bytes": 32,
                    "ns": 10,
                    "exposed_ns": 8,
                    "algbw_bytes_per_s": None,
                    "busbw_bytes_per_s": None,
                }
            ],
        },
        "time_by_step": [
            {
                "step": 0,
                "span_ns": 90,
                "compute_ns": 10,
                "communication_ns": 10,
                "exposed_ns": 8,
                "memory_ns": 0,
                "idle_ns": 72,
                "host_bound_ns": None,
                "host_bound_not_recorded": "it ran on CPU: host and device are one",
                "overlapped_ns": 2,
                "collectives": [
                    {
                        "phase": "FORWARD",
                        "kind": "ALL_GATHER",
                        "count": 1,
                        "total_ns": 10,
                        "exposed_ns": 8,
                        "size_bytes": 32,
                    }
                ],
            }
        ],
        "across_ranks": {
            "matched": 0,
            "unmatched": 1,
            "unmatched_why": {"the ranks of its group are not known": 1},
            "clock": {
                "offset_ns": None,
                "residual_ns": None,
                "reason": "no collective was recorded by all of its ranks",
            },
            "stragglers": [],
            "never_joined": [],
            "by_kind": {},
        },
        "growth": [],
        "kept_unsharded": [{"unit": 0, "name": "layers.0", "step": 0, "size_bytes": 32}],
        "post_mortems": [],
        "receipt": {
            "hook_events": 0,
            "allocator_events": 0,
            "flush_ns": 0,
            "raw_bytes": 0,
            "convert_ns": 0,
            "recorded_step_ns": None,
            "bare_step_ns": None,
            "num_bare_steps": 0,
        },
        "warnings": [],
        "not_recorded": {
            "reserved_peak_bytes": "the CPU allocator has no reserved pool",
            "device_used_peak_bytes": "the ranks ran on CPU",
        },
    }


def test_json_is_the_only_thing_on_standard_output_whatever_the_section(capsys, tmp_path):
    run = fsdp2_run(tmp_path)
    assert main(["show", str(run.path), "units", "--json"]) == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["run"]["name"] == "fsdp2"
    assert done.err == ""


def test_json_of_a_rank_has_its_units_and_collectives(capsys, tmp_path):
    path = fsdp2_run(tmp_path).path
    documents = [json.loads(shown(capsys, path, "--json", "--rank", str(rank))) for rank in (0, 1)]
    assert [document["reported_rank"] for document in documents] == [0, 1]
