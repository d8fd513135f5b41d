"""Traces recorded by others read as json.load reads them, exact to the nanosecond."""

import gzip
import json
from collections import Counter
from decimal import Decimal

import pytest
from ingest.conftest import find_traces

from fsdp_profile.ingest.kineto.reader import read_trace

TRACES = find_traces()
PATHS = sorted(TRACES.rglob("*.json.gz")) if TRACES else []
HOST = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}
EXPECTED_COLLECTIVES = {
    "worker": {"ALL_REDUCE": 3, "ALL_TO_ALL": 5},
    "control": {"ALL_REDUCE": 18, "ALL_TO_ALL": 42},
    "nccl_data": {"ALL_REDUCE": 15, "BROADCAST": 6},
    "rank-34": {"ALL_REDUCE": 10},
    "eager_trace": {"ALL_REDUCE": 73, "ALL_GATHER": 1},
    "resnet_act_checkpoint": {"ALL_REDUCE": 6, "BROADCAST": 6, "OTHER": 5},
    "deepseek_v3": {"ALL_TO_ALL": 16, "OTHER": 16},
    "mi250": {},
    "rank_not_found": {},
    "rank-0.": {},
    "rank0.": {"ALL_TO_ALL": 45, "REDUCE_SCATTER": 10, "ALL_REDUCE": 10, "ALL_GATHER": 10, "SEND_RECV": 5},
}

pytestmark = pytest.mark.skipif(not PATHS, reason="no recorded traces: set FSDP_PROFILE_TRACES to their folder")


@pytest.fixture(scope="module", params=PATHS, ids=lambda path: path.name[:40])
def pair(request):
    """What our reader and what json.load makes of one file, numbers as decimals."""
    with gzip.open(request.param) as file:
        document = json.load(file, parse_float=Decimal)
    return request.param, read_trace(request.param, keep_python_functions=True), document


def timed(document):
    return [e for e in document["traceEvents"] if e["ph"] == "X"]


def test_counts_names_times_and_ids_agree(pair):
    _, trace, document = pair
    events, expected = trace.events, timed(document)
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (len(document["traceEvents"]), 0, False)
    assert events["name"].to_pylist() == [e["name"] for e in expected]
    assert events["category"].to_pylist() == [e["cat"].lower() for e in expected]
    base_ns = document.get("baseTimeNanoseconds", 0)
    starts = [base_ns + int(e["ts"] * 1000) for e in expected]
    assert events["start_ns"].to_pylist() == starts
    durations = (events["end_ns"].to_numpy() - events["start_ns"].to_numpy()).tolist()
    assert durations == [max(0, int(e["dur"] * 1000)) for e in expected]
    args = [e.get("args", {}) for e in expected]
    assert events["correlation"].to_pylist() == [a.get("correlation", -1) for a in args]
    assert events["external_id"].to_pylist() == [a.get("External id", -1) for a in args]
    assert events["stream"].to_pylist() == [
        -1 if e["cat"] in HOST | {"python_function", "Trace", "overhead"} else a.get("stream", e["tid"])
        for e, a in zip(expected, args, strict=True)
    ]


def test_metadata_agrees(pair):
    _, trace, document = pair
    info = document.get("distributedInfo", {})
    assert trace.world_size == info.get("world_size")
    assert trace.base_ns == document.get("baseTimeNanoseconds", 0)
    assert (trace.rank_source == "content") == ("rank" in info)
    assert trace.rank == info.get("rank")
    assert [g.name for g in trace.process_groups] == [g["pg_name"] for g in info.get("pg_config", [])]


def test_collectives_agree(pair):
    path, trace, document = pair
    found = trace.collectives.to_pylist()
    [kinds] = [kinds for start, kinds in EXPECTED_COLLECTIVES.items() if path.name.startswith(start)]
    assert Counter(r["kind"] for r in found) == kinds
    expected = timed(document)
    nccl = {i for i, e in enumerate(expected) if e["cat"] == "kernel" and "nccl" in e["name"].lower()}
    assert nccl <= {r["event"] for r in found}
    for row in found:
        args = expected[row["event"]]["args"]
        if "Collective name" in args:
            told = [args[k] for k in ("In msg nelems", "Out msg nelems", "Group size", "Process Group Name")]
            assert told == [row["in_numel"], row["out_numel"], row["group_size"], row["group"]]
            assert row["issue_ns"] <= trace.events["start_ns"][row["event"]].as_py()


def test_python_functions_are_skipped_and_counted(pair):
    path, trace, document = pair
    is_python = [e["cat"] == "python_function" for e in timed(document)]
    skipped = read_trace(path)
    assert skipped.num_python_functions == sum(is_python)
    assert skipped.events.num_rows == trace.events.num_rows - sum(is_python)
    assert Counter(skipped.collectives["kind"].to_pylist()) == Counter(trace.collectives["kind"].to_pylist())
