"""Every case file has one right answer; so has each rule of the reader."""

import gzip
import json
import shutil

import numpy as np
import pytest
from ingest.kineto.kineto_factory import BASE_NS, document, groups, kernel, timed, write

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.reader import ProcessGroup, read_trace

US = 1000
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "toy_gemm_128x128_nn"
CONTROL = [
    ("FSDP::all_gather (layers.0)", "user_annotation", 1000, 40),
    ("record_param_comms", "cpu_op", 1002, 6),
    ("cudaLaunchKernel", "cuda_runtime", 1004, 2),
    (ALL_GATHER, "kernel", 1020, 100),
    (GEMM, "kernel", 1125, 80),
    (REDUCE_SCATTER, "kernel", 1230, 60),
]
ARRAY_FORMAT = (
    "array format: no rank, base time or process groups in the file; "
    "times count from an unknown moment, and any rank shown for it is assumed"
)


def events_of(trace, *, origin_ns=BASE_NS):
    """Name, category, start and duration in us."""
    rows = trace.events.to_pylist()
    found = [
        (r["name"], r["category"], (r["start_ns"] - origin_ns) / US, (r["end_ns"] - r["start_ns"]) / US) for r in rows
    ]
    assert all(start == int(start) for _, _, start, _ in found)
    return found


def collectives_of(trace):
    """Kind and duration in us."""
    durations = durations_ns(trace)
    return [(r["kind"], durations[r["event"]] / US) for r in trace.collectives.to_pylist()]


def durations_ns(trace):
    return (trace.events["end_ns"].to_numpy() - trace.events["start_ns"].to_numpy()).tolist()


def shifted(by_us):
    return [(name, category, start + by_us, duration) for name, category, start, duration in CONTROL]


def assert_is_control(trace):
    assert events_of(trace) == CONTROL
    assert collectives_of(trace) == [("ALL_GATHER", 100), ("REDUCE_SCATTER", 60)]
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (7, 0, False)


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


def test_01_unescaped_quote_drops_one_event(kineto_cases):
    trace = read_trace(kineto_cases / "01-unescaped-quote-in-name.json")
    assert events_of(trace) == CONTROL
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (7, 1, False)
    assert trace.warnings == ["damaged events: events kept: 7, dropped: 1, the first after event 7"]


def test_03_tokens_that_are_no_numbers_are_missing_values(kineto_cases):
    path = kineto_cases / "03-inf-nan-tokens.json"
    trace = read_trace(path, keep_python_functions=True)
    assert events_of(trace) == [*CONTROL, ("Memcpy HtoD", "python_function", 1400, 0)]
    assert (trace.num_events, trace.num_dropped) == (8, 0)
    assert trace.warnings == ["values that are no numbers (NaN, inf), taken as missing: 4"]
    skipped = read_trace(path)
    assert events_of(skipped) == CONTROL
    assert (skipped.num_events, skipped.num_python_functions) == (8, 1)


def test_04_truncated_keeps_every_whole_event(kineto_cases):
    path = kineto_cases / "04-truncated-mid-event.json"
    trace = read_trace(path)
    num_started = path.read_text().count('"ph": "')
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (num_started - 1, 1, True)
    assert events_of(trace)[:6] == CONTROL
    kernels = trace.events.to_pylist()[6:]
    assert [k["start_ns"] - BASE_NS for k in kernels] == [(1500 + i) * US for i in range(len(kernels))]
    assert trace.warnings == [
        "truncated: the file ends early; events kept: 26, dropped: 1, the first after event 26; "
        "the last step is incomplete"
    ]


def test_05_truncated_gzip_gives_what_was_inflated(kineto_cases):
    trace = read_trace(kineto_cases / "05-truncated-mid-stream.json.gz")
    assert events_of(trace)[:6] == CONTROL
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (19, 1, True)
    assert trace.warnings == [
        "truncated: the gzip stream is cut; events kept: 19, dropped: 1, the first after event 19; "
        "the last step is incomplete"
    ]


@pytest.mark.parametrize("name", ["06-gzip-bytes-named-json.json", "07-plain-bytes-named-gz.json.gz"])
def test_06_07_content_decides_the_format(kineto_cases, name):
    trace = read_trace(kineto_cases / name)
    assert_is_control(trace)
    assert trace.warnings == []


def test_09_unfinished_negative_and_overlapping_durations(kineto_cases):
    trace = read_trace(kineto_cases / "09-negative-and-overlapping-dur.json")
    assert events_of(trace) == [
        *CONTROL,
        ("unfinished_op", "cpu_op", 1600, 0),
        ("broken_end", "cpu_op", 1700, 0),
        (GEMM, "kernel", 1800, 50),
        ("toy_gemm_overlap", "kernel", 1830, 50),
    ]
    assert trace.events["is_open"].to_pylist() == [False] * 6 + [True, False, False, False]
    assert trace.warnings == ["unfinished events, shown as open: 1", "negative durations, taken as 0: 1"]


def test_11_times_as_text_are_exact(kineto_cases):
    trace = read_trace(kineto_cases / "11-ts-dur-as-strings-absolute-epoch.json")
    assert_is_control(trace)
    assert trace.warnings == ["times are absolute: the base time is not added"]


def test_12_base_times_put_ranks_on_one_axis(kineto_cases):
    first, second = (
        read_trace(kineto_cases / f"12-base-time-differs-rank{rank}.json").events["start_ns"][0].as_py()
        for rank in (0, 1)
    )
    assert second - first == 1_500_000_000


def test_13_integer_absolute_times_are_on_the_same_axis(kineto_cases):
    old, new = (read_trace(kineto_cases / f"13-no-base-time-absolute-us-rank{rank}.json") for rank in (0, 1))
    assert events_of(old) == CONTROL
    assert events_of(new) == shifted(1)
    assert (old.base_ns, new.base_ns) == (0, BASE_NS)
    assert old.warnings == ["us precision only: times are whole microseconds"]
    assert new.warnings == []


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


def test_19_invalid_utf8_is_replaced_and_counted(kineto_cases):
    trace = read_trace(kineto_cases / "19-invalid-utf8-name.json")
    assert events_of(trace) == [*CONTROL, ("toy_\ufffd(_\ufffd\ufffd_op", "cpu_op", 1400, 3)]
    assert (trace.num_events, trace.num_dropped) == (8, 0)
    assert trace.warnings == ["events with invalid UTF-8, bytes replaced: 1"]


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


def test_28_two_writers_are_refused(kineto_cases):
    expected = r"28-.*\.json: two traces are mixed in this file \(processes 4242, 4243\)"
    with pytest.raises(InputError, match=expected):
        read_trace(kineto_cases / "28-two-ranks-wrote-one-file.json")


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


def test_33_empty_file(kineto_cases, tmp_path):
    with pytest.raises(InputError, match=r"33-empty-file\.json: empty file$"):
        read_trace(kineto_cases / "33-empty-file.json")
    (tmp_path / "empty.json.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(InputError, match=r"empty\.json\.gz: empty file$"):
        read_trace(tmp_path / "empty.json.gz")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x04}q\x00.", "not JSON"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"schemaVersion": 1, "distributedInfo": {"ra', "no traceEvents"),
        (b'{"traceEvents": []}', "no timed events"),
        (b"[]", "no timed events"),
        (b"[1, 2, 3]", "no timed events"),
        (b"[", "no timed events"),
        (gzip.compress(b'{"traceEvents": [' * 9)[:12], "the gzip stream is cut"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path, content, reason):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_trace(path)


def test_two_traces_one_after_the_other_are_refused(tmp_path):
    text = json.dumps(document([kernel("a", 1.0, 2.0), kernel("b", 2.0, 2.0)]))
    path = tmp_path / "x.json"
    path.write_text(text + text)
    with pytest.raises(InputError, match="two traces are mixed in this file"):
        read_trace(path)


def test_merged_ranks_without_damage_are_refused(tmp_path):
    path = write(tmp_path / "x.json", [timed("aten::mul", 1.0, 1.0), timed("aten::mul", 2.0, 1.0, pid=4243)])
    with pytest.raises(InputError, match="two traces are mixed in this file"):
        read_trace(path)


def test_metadata_may_follow_the_events(tmp_path):
    info = groups(("0", "default_pg", [0, 1]), ("5", "mesh_dp", [0, 1]), rank=1, world_size=2)
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [kernel("a", 1.5, 2.0)], **info, "baseTimeNanoseconds": BASE_NS}))
    trace = read_trace(path)
    assert (trace.rank, trace.world_size, trace.base_ns, len(trace.process_groups)) == (1, 2, BASE_NS, 2)
    assert trace.events["start_ns"].to_pylist() == [BASE_NS + 1500]
    assert (trace.num_events, trace.is_cut, trace.warnings) == (1, False, [])


def test_cut_behind_the_events_keeps_all(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [' + json.dumps(kernel("a", 1.5, 2.0)) + '], "traceName": "/tm')
    trace = read_trace(path)
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (1, 0, True)


def test_absolute_fractions_are_exact_to_the_nanosecond(tmp_path):
    texts = ["1712195495519689.047", "1712195495519695.812", "1712195495519698.687", '"1712195495519703.772"']
    events = [json.dumps(timed("a", i, 1.25)).replace(f'"ts": {i}', f'"ts": {t}') for i, t in enumerate(texts)]
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    trace = read_trace(path)
    assert trace.events["start_ns"].to_pylist() == [int(t.strip('"').replace(".", "")) for t in texts]
    assert durations_ns(trace) == [1250] * 4


def test_absolute_float64_times_say_their_precision(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [timed("a", 1712195495406752.8, 1.0)]}))
    trace = read_trace(path, rank=0)
    assert trace.events["start_ns"].to_pylist() == [1712195495406752800]
    assert trace.warnings[0] == "0.25 us precision only: absolute times were written from float64"


def test_relative_times_are_exact_up_to_three_months(tmp_path):
    times_ns = np.random.default_rng(0).integers(0, 7_889_238 * 10**9, 2000).tolist()
    events = [timed("a", 0, 0) | {"ts": ns / US, "dur": (ns % 10**9) / US} for ns in times_ns]
    trace = read_trace(write(tmp_path / "x.json", events))
    assert (trace.events["start_ns"].to_numpy() - BASE_NS).tolist() == times_ns
    assert durations_ns(trace) == [ns % 10**9 for ns in times_ns]


def test_events_without_a_usable_time_are_dropped(tmp_path):
    bad = [timed("a", ts, 1) for ts in (None, "soon", 1e300, "NaN", True)]
    path = write(tmp_path / "x.json", [timed("kept", 5.0, 1), *bad])
    trace = read_trace(path, rank=0)
    assert trace.events["name"].to_pylist() == ["kept"]
    assert (trace.num_events, trace.num_dropped) == (1, 5)
    assert "events without a usable time, dropped: 5" in trace.warnings


def test_missing_duration_is_unfinished(tmp_path):
    events = [timed("a", 5.0, 1), timed("b", 6.0, None), timed("c", 7.0, "2.5")]
    del events[0]["dur"]
    trace = read_trace(write(tmp_path / "x.json", events))
    assert trace.events["is_open"].to_pylist() == [True, True, False]
    assert durations_ns(trace) == [0, 0, 2500]


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


def test_lone_surrogates_and_control_characters_in_names(tmp_path):
    path = tmp_path / "x.json"
    text = json.dumps(document([timed("SURROGATE", 1.0, 1), timed("CONTROL", 2.0, 1), timed("good", 3.0, 1)]))
    path.write_text(text.replace("SURROGATE", "a\\ud800b").replace("CONTROL", "a\nb"))
    trace = read_trace(path, rank=0)
    assert trace.events["name"].to_pylist() == ["a?b", "a\nb", "good"]
    assert trace.warnings[0] == "events with invalid UTF-8, bytes replaced: 1"
