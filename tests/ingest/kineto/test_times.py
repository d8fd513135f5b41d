"""Times are exact to the nanosecond and on one axis."""

import json

import numpy as np
from ingest.kineto.kineto_factory import BASE_NS, timed, write
from ingest.kineto.reading import CONTROL, GEMM, US, assert_is_control, durations_ns, events_of, shifted

from fsdp_profile.ingest.kineto.reader import read_trace


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
