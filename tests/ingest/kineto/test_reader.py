"""Traces of every format and generation: events, ranks, groups and collectives."""

import json
import shutil

import pytest
from ingest.kineto.kineto_factory import BASE_NS, groups, kernel, timed, write
from ingest.kineto.reading import ALL_GATHER, CONTROL, US, assert_is_control, collectives_of, events_of, shifted

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.reader import ProcessGroup, read_trace

ARRAY_FORMAT = (
    "array format: no rank, base time or process groups in the file; "
    "times count from an unknown moment, and any rank shown for it is assumed"
)


def test_00_control(kineto_cases):
    traces = [read_trace(kineto_cases / f"00-good-rank{rank}.json") for rank in (0, 1)]
    assert_is_control(traces[0])
    assert events_of(traces[1]) == shifted(1)
    for rank, trace in enumerate(traces):
        assert (trace.rank, trace.rank_source, trace.world_size, trace.warnings) == (rank, "content", 2, [])
        assert trace.base_ns == BASE_NS
        assert trace.process_groups == (
            ProcessGroup(name="0", description="default_pg", backend="cuda:nccl", size=2, ranks=(0, 1)),
        )
    gather = traces[0].collectives.to_pylist()[0]
    assert gather == {
        "event": 3,
        "kind": "ALL_GATHER",
        "dtype": "bfloat16",
        "in_numel": 512,
        "out_numel": 1024,
        "size_bytes": 2048,
        "group_size": 2,
        "group": "0",
        "group_description": "default_pg",
        "seq": None,
        "is_device": True,
        "issue_ns": BASE_NS + 1002 * US,
        "transport": ALL_GATHER,
    }


def test_00_columns_of_events(kineto_cases):
    rows = read_trace(kineto_cases / "00-good-rank0.json").events.to_pylist()
    assert [r["stream"] for r in rows] == [-1, -1, -1, 20, 7, 24]
    assert [r["thread"] for r in rows] == [4242, 4242, 4242, 20, 7, 24]
    assert [r["correlation"] for r in rows] == [-1, -1, 31, 31, 33, 35]
    assert [r["external_id"] for r in rows] == [-1, 31, 31, 31, -1, -1]
    assert not any(r["is_open"] for r in rows)


@pytest.mark.parametrize("name", ["06-gzip-bytes-named-json.json", "07-plain-bytes-named-gz.json.gz"])
def test_06_07_content_decides_the_format(kineto_cases, name):
    trace = read_trace(kineto_cases / name)
    assert_is_control(trace)
    assert trace.warnings == []


def test_15_without_distributed_info_the_rank_is_assumed(kineto_cases, tmp_path):
    path = kineto_cases / "15-no-distributedInfo.json"
    nowhere = read_trace(path)
    assert_is_control(nowhere)
    assert (nowhere.rank, nowhere.rank_source, nowhere.world_size) == (None, "none", None)
    assert nowhere.warnings == ["no rank in the file or its name; any rank shown for it is assumed"]
    given = read_trace(path, rank=3)
    assert (given.rank, given.rank_source) == (3, "given")
    assert given.warnings == ["rank assumed: 3, as given; its content has no rank"]
    named = read_trace(shutil.copy(path, tmp_path / "rank-5.pt.trace.json"))
    assert (named.rank, named.rank_source) == (5, "file name")
    assert named.warnings == ["rank assumed: 5, from the file name; its content has no rank"]


def test_17_content_beats_file_name(kineto_cases):
    traces = [read_trace(kineto_cases / f"17-names-all-say-r0.r0-2031-1-1.{i}.pt.trace.json") for i in (1, 2)]
    assert [(t.rank, t.rank_source) for t in traces] == [(0, "content"), (1, "content")]
    assert traces[0].warnings == []
    assert traces[1].warnings == ["rank 1 by content; file name says 0, which is not used"]


def test_content_beats_given_rank(kineto_cases):
    trace = read_trace(kineto_cases / "00-good-rank1.json", rank=0)
    assert (trace.rank, trace.warnings) == (1, ["rank 1 by content; given says 0, which is not used"])


def test_21_top_level_list_says_what_cannot_be_shown(kineto_cases):
    trace = read_trace(kineto_cases / "21-top-level-list-string-pids.json")
    assert events_of(trace, origin_ns=0) == [("aten::mul", "", 633, 54), ("toy_kernel", "", 650, 5)]
    assert (trace.rank, trace.rank_source, trace.base_ns, trace.num_events) == (None, "none", 0, 2)
    assert trace.collectives.num_rows == 0
    assert trace.warnings == [
        ARRAY_FORMAT,
        "us precision only: times are whole microseconds",
        "no categories: kernels, collectives and steps cannot be distinguished from other events",
    ]


def test_22_every_generation_of_nccl_names(kineto_cases):
    trace = read_trace(kineto_cases / "22-nccl-name-generations.json")
    assert collectives_of(trace) == [
        ("ALL_REDUCE", 100),
        ("ALL_REDUCE", 100),
        ("REDUCE_SCATTER", 100),
        ("SEND_RECV", 100),
        ("ALL_GATHER", 100),
        ("REDUCE_SCATTER", 100),
    ]
    assert trace.collectives["is_device"].to_pylist() == [True] * 6
    assert trace.warnings == []


def test_23_rccl_kinds_come_from_the_calls(kineto_cases):
    trace = read_trace(kineto_cases / "23-rccl-generic-kernel.json")
    assert collectives_of(trace) == [("ALL_GATHER", 90), ("REDUCE_SCATTER", 70), ("OTHER", 30)]
    assert trace.collectives["size_bytes"].to_pylist() == [4096, 4096, None]
    assert trace.collectives["issue_ns"].to_pylist() == [BASE_NS + 1000 * US, BASE_NS + 1200 * US, None]
    assert trace.warnings == ["collectives of unknown kind: 1 ('ncclDevKernel_Generic_1(ncclDevKernelArg' 1)"]


def test_25_metadata_only(kineto_cases):
    with pytest.raises(InputError, match=r"25-metadata-only\.json: no timed events \(3 others, 0 damaged\)"):
        read_trace(kineto_cases / "25-metadata-only.json")


def test_26_gloo_carries_reduce_scatter_as_all_reduce(kineto_cases):
    trace = read_trace(kineto_cases / "26-cpu-gloo-only.json")
    assert collectives_of(trace) == [("ALL_GATHER", 20), ("REDUCE_SCATTER", 25)]
    assert trace.collectives["transport"].to_pylist() == ["gloo:all_gather", "gloo:all_reduce"]
    assert trace.collectives["in_numel"].to_pylist() == [136, 272]
    assert trace.collectives["is_device"].to_pylist() == [False, False]
    assert trace.events["stream"].to_pylist() == [-1] * 4
    assert trace.num_events == 5
    assert trace.warnings == [
        "memory events: 1, of host memory, not VRAM",
        "reduce-scatters carried by gloo:all_reduce: 1",
    ]


def test_30_array_format_needs_no_closing_bracket(kineto_cases):
    trace = read_trace(kineto_cases / "30-array-format-no-closing-bracket.json")
    assert events_of(trace, origin_ns=0) == CONTROL
    assert collectives_of(trace) == [("ALL_GATHER", 100), ("REDUCE_SCATTER", 60)]
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (7, 0, False)
    assert trace.warnings == [ARRAY_FORMAT]


def test_32_groups_are_told_apart(kineto_cases):
    trace = read_trace(kineto_cases / "32-process-groups-two-meshes.json")
    rows = trace.collectives.to_pylist()
    assert [(r["kind"], r["group"], r["group_description"], r["group_size"]) for r in rows] == [
        ("ALL_GATHER", "5", "mesh_dp", 2),
        ("ALL_REDUCE", "7", "mesh_tp", 2),
    ]
    assert {g.name: g.ranks for g in trace.process_groups} == {"0": (0, 1, 2, 3), "5": (0, 2), "7": (0, 1)}
    assert trace.warnings == []


def test_metadata_may_follow_the_events(tmp_path):
    info = groups(("0", "default_pg", [0, 1]), ("5", "mesh_dp", [0, 1]), rank=1, world_size=2)
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [kernel("a", 1.5, 2.0)], **info, "baseTimeNanoseconds": BASE_NS}))
    trace = read_trace(path)
    assert (trace.rank, trace.world_size, trace.base_ns, len(trace.process_groups)) == (1, 2, BASE_NS, 2)
    assert trace.events["start_ns"].to_pylist() == [BASE_NS + 1500]
    assert (trace.num_events, trace.is_cut, trace.warnings) == (1, False, [])


def test_other_types_of_fields_are_read(tmp_path):
    odd = {"stream": "0x0", "correlation": "17", "External id": None}
    device, host = {"ph": "X", "cat": "kernel", "ts": 1.0, "dur": 1}, {"ph": "X", "cat": "cpu_op", "ts": 1.0, "dur": 1}
    events = [
        {**device, "cat": "Kernel", "name": "a", "pid": "GPU 0", "tid": "stream 7", "args": odd},
        {**device, "name": "b", "pid": 0, "tid": 9, "args": {"stream": 4294967295}},
        {**host, "name": "triton", "pid": 1, "tid": "stream 7", "args": {"stream": 7}},
        {**host, "name": "c", "pid": 1, "tid": 2, "args": None},
        {**host, "name": "d", "pid": 1, "tid": 2, "args": [1]},
        {**host, "name": 5, "pid": 1, "tid": 2, "cat": None},
    ]
    trace = read_trace(write(tmp_path / "x.json", events))
    rows = trace.events.to_pylist()
    assert [r["stream"] for r in rows] == [0, 9, -1, -1, -1, -1]
    assert [r["correlation"] for r in rows] == [17, -1, -1, -1, -1, -1]
    assert [r["thread"] for r in rows] == [-2, 9, -2, 2, 2, 2]
    assert [r["category"] for r in rows] == ["kernel", "kernel", "cpu_op", "cpu_op", "cpu_op", ""]
    assert rows[5]["name"] == "5"
    assert (trace.num_events, trace.num_dropped) == (6, 0)


def test_phases_that_are_not_shown_are_counted(tmp_path):
    events = [timed("a", 1.0, 1), {"ph": "B", "ts": 1}, {"ph": "E", "ts": 2}, {"ph": "E", "ts": 3}]
    trace = read_trace(write(tmp_path / "x.json", events), rank=0)
    assert trace.warnings[0] == "events of phases that are not shown: 3 ('E' 2, 'B' 1)"
    assert trace.num_events == 4


def test_device_memory_events_are_no_warning(tmp_path):
    event = {"ph": "i", "name": "[memory]", "ts": 1.0, "args": {"Device Type": 1, "Bytes": 8}}
    trace = read_trace(write(tmp_path / "x.json", [timed("a", 1.0, 1), event], **groups(rank=0)))
    assert trace.warnings == []
