"""Damaged, cut and mixed traces: what is kept, and what is refused in one line."""

import gzip
import json

import pytest
from ingest.kineto.kineto_factory import BASE_NS, document, kernel, timed, write
from ingest.kineto.reading import (
    CONTROL,
    US,
    events_of,
)

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.reader import read_trace


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


def test_19_invalid_utf8_is_replaced_and_counted(kineto_cases):
    trace = read_trace(kineto_cases / "19-invalid-utf8-name.json")
    assert events_of(trace) == [*CONTROL, ("toy_\ufffd(_\ufffd\ufffd_op", "cpu_op", 1400, 3)]
    assert (trace.num_events, trace.num_dropped) == (8, 0)
    assert trace.warnings == ["events with invalid UTF-8, bytes replaced: 1"]


def test_28_two_writers_are_refused(kineto_cases):
    expected = r"28-.*\.json: two traces are mixed in this file \(processes 4242, 4243\)"
    with pytest.raises(InputError, match=expected):
        read_trace(kineto_cases / "28-two-ranks-wrote-one-file.json")


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


def test_cut_behind_the_events_keeps_all(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [' + json.dumps(kernel("a", 1.5, 2.0)) + '], "traceName": "/tm')
    trace = read_trace(path)
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (1, 0, True)


def test_lone_surrogates_and_control_characters_in_names(tmp_path):
    path = tmp_path / "x.json"
    text = json.dumps(document([timed("SURROGATE", 1.0, 1), timed("CONTROL", 2.0, 1), timed("good", 3.0, 1)]))
    path.write_text(text.replace("SURROGATE", "a\\ud800b").replace("CONTROL", "a\nb"))
    trace = read_trace(path, rank=0)
    assert trace.events["name"].to_pylist() == ["a?b", "a\nb", "good"]
    assert trace.warnings[0] == "events with invalid UTF-8, bytes replaced: 1"
