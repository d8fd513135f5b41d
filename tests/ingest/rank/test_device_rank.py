"""A CUDA rank without a device: its log, allocator history and Kineto trace as capture would write them."""

import json
from pathlib import Path

from ingest.kineto.kineto_factory import document, kernel, launch, timed

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.host_states import HostStates, host_states
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.ingest.rank.convert import convert_rank

BASE_NS = 1_790_857_026_000_000_000
MIB = 1 << 20


def at(us: int) -> int:
    return BASE_NS + us * 1000


def columns(names: str, *rows: tuple[object, ...]) -> dict[str, list[object]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names.split())}


def write_rank(run_dir: Path) -> None:
    """One step: params from set-up, a gather of 2 MiB in forward whose free a stream holds back for 20 us."""
    history = [
        ("segment_alloc", 0x1000000, 20 * MIB, 1), ("alloc", 0x1000000, 4 * MIB, 2),
        ("alloc", 0x1400000, 2 * MIB, 120), ("free_requested", 0x1400000, 2 * MIB, 180),
        ("free_completed", 0x1400000, 2 * MIB, 200),
    ]  # fmt: skip
    segment = {
        "device": 0, "address": 0x1000000, "total_size": 20 * MIB, "stream": 0, "segment_type": "large",
        "blocks": [
            {"address": 0x1000000, "size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated"},
            {"address": 0x1400000, "size": 16 * MIB, "requested_size": 0, "state": "inactive"},
        ],
    }  # fmt: skip
    chunk = {
        "kind": "chunk",
        "step": 0,
        "began_ns": at(0),
        "cuda": [
            {
                "device": 0,
                "ring_was_full": False,
                "events": {
                    "action": [e[0] for e in history],
                    "addr": [e[1] for e in history],
                    "size": [e[2] for e in history],
                    "stream": [0] * len(history),
                    "time_us": [BASE_NS // 1000 + e[3] for e in history],
                },
                "segments": [segment],
            }
        ],
        "device": {"t_ns": [at(150)], "device_used_bytes": [600 * MIB], "device_total_bytes": [80 << 30]},
        "tags": columns(
            "t_ns address size_bytes category unit name weak",
            (at(3), 0x1000000, 4 * MIB, "PARAM", 0, "w", False),
            (at(121), 0x1400000, 2 * MIB, "UNSHARDED_PARAM", 0, "w", False),
        ),
        "spans": columns(
            "unit kind start_ns end_ns size_bytes prefetched",
            (0, "ALL_GATHER", at(110), at(119), 2 * MIB, False),
            (0, "RESHARD", at(178), at(181), 2 * MIB, False),
        ),
        "calls": columns(
            "collective start_ns end_ns size_bytes group_size unit prefetched",
            ("ALL_GATHER", at(111), at(118), 2 * MIB, 2, 0, False),
        ),
        "host_states": columns(
            "t_ns category is_pinned size_bytes",
            (at(310), "OPTIMIZER_STATE", False, 8 * MIB),
            (at(310), "PARAM", True, 4 * MIB),
        ),
        "modules": columns(
            "path start_ns end_ns",
            ("(root)", at(100), at(240)),
            ("layers.0", at(105), at(170)),
            ("x", at(171), at(240)),
        ),
        "phases": columns("t_ns phase", (at(0), "SETUP"), (at(100), "FORWARD"), (at(250), "OPTIMIZER")),
        "drops": columns("t_ns address"),
        "steps": [at(300)],
    }
    unit = {
        "unit": 0, "name": "layers.0", "kind": "FSDP2", "numel": MIB, "num_params": 1, "sharded_bytes": 4 * MIB,
        "unsharded_bytes": 2 * MIB, "dtype": "float32", "compute_dtype": "bfloat16", "shard_size": 2,
        "replicate_size": 1, "reshard_after_forward": "yes", "sharding": "",
    }  # fmt: skip
    records = [
        {"kind": "rank", "rank": 0, "start_ns": at(0)},
        {"kind": "units", "units": [unit]},
        {"kind": "first_forward", "t_ns": at(100)},
        chunk,
        {"kind": "end", "reason": "process ended", "t_ns": at(310), "device_type": "cuda", "lost": {}},
    ]
    raw = layout.raw_dir(run_dir, 0)
    raw.mkdir(parents=True)
    (raw / "capture.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    comms = {"Collective name": "_allgather_base", "In msg nelems": 524288, "Out msg nelems": 1048576,
             "dtype": "BFloat16", "Group size": 2, "Process Group Name": "0", "External id": 9}  # fmt: skip
    events = [
        timed("record_param_comms", 112, 4, **comms),
        launch(114, 41, **{"External id": 9}),
        kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 130, 40, stream=20, correlation=41,
               **{"External id": 9}),
        launch(125, 42),
        kernel("gemm", 150, 60, correlation=42),
    ]  # fmt: skip
    (raw / "kineto.json").write_text(json.dumps(document(events)))
    write_manifest(run_dir, Manifest(name="cuda", created="now", device_type="cuda"))


def test_a_cuda_rank_becomes_tables(tmp_path: Path) -> None:
    write_rank(tmp_path)
    log = convert_rank(tmp_path, 0)
    run = load_run(tmp_path)
    law = ledger.conservation(run, rank=0)
    assert (law.category_errors, law.reported_errors) == (0, None)
    peak = ledger.peak(run, rank=0)
    assert peak is not None
    assert (peak.allocated_bytes, peak.step, peak.phase) == (6 * MIB, 0, "FORWARD")
    assert {str(c): size for c, size in peak.by_category.items()} == {
        "PARAM": 4 * MIB,
        "UNSHARDED_PARAM": 2 * MIB,
    }
    samples = run.table("memory_samples", rank=0)
    assert samples.column("allocated_bytes").to_pylist()[-2:] == [4 * MIB, 4 * MIB]
    assert samples.column("active_bytes").to_pylist()[-2:] == [6 * MIB, 4 * MIB]  # freed, but held by a stream
    assert ledger.reserved_peak_bytes(run, rank=0) == 20 * MIB
    assert ledger.device_used_peak_bytes(run, rank=0) == 600 * MIB
    assert not [w for w in log.warnings if "not written" in w]


def test_its_collectives_are_joined_to_units_and_overlap_with_kernels(tmp_path: Path) -> None:
    write_rank(tmp_path)
    convert_rank(tmp_path, 0)
    run = load_run(tmp_path)
    collective = run.table("collectives", rank=0).to_pylist()[0]
    assert (collective["kind"], collective["unit"], collective["size_bytes"], collective["group_size"]) == (
        "ALL_GATHER", 0, 2 * MIB, 2,
    )  # fmt: skip
    assert (collective["start_ns"], collective["end_ns"]) == (at(130), at(170))
    summary = collective_summary(run, rank=0)
    assert summary is not None
    assert (summary.total_ns, summary.exposed_ns) == (40_000, 20_000)


def test_blocks_know_the_module_they_were_allocated_in(tmp_path: Path) -> None:
    write_rank(tmp_path)
    convert_rank(tmp_path, 0)
    blocks = load_run(tmp_path).table("allocations", rank=0).to_pylist()
    assert [(row["size_bytes"], row["module"]) for row in blocks] == [(4 * MIB, ""), (2 * MIB, "layers.0")]


def test_states_on_the_host_lie_beside_the_ledger(tmp_path: Path) -> None:
    write_rank(tmp_path)
    convert_rank(tmp_path, 0)
    found = host_states(load_run(tmp_path), rank=0)
    assert found == HostStates(
        rank=0,
        step=0,
        t_ns=at(310),
        by_category={Category.OPTIMIZER_STATE: 8 * MIB, Category.PARAM: 4 * MIB},
        pinned_bytes=4 * MIB,
    )


def test_a_damaged_trace_leaves_the_ledger(tmp_path: Path) -> None:
    write_rank(tmp_path)
    (layout.raw_dir(tmp_path, 0) / "kineto.json").write_text("")
    log = convert_rank(tmp_path, 0)
    assert any("kernels and collectives are not in the tables" in w for w in log.warnings)
    assert ledger.peak(load_run(tmp_path), rank=0) is not None
