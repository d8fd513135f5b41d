"""However a trace is cut and damaged, every whole event of it is kept, in bounded memory."""

import gzip
import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest.kineto.kineto_factory import BASE_NS, timed, write

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.reader import read_trace
from fsdp_profile.ingest.kineto.stream import EventStream, last_boundary

TRICKY = ['"', "}, {", '},{"ph":"X"', "],", "\\", "é", "\u2028", "[", "{", "\x00", "\n", "name", "😀"]
texts = st.lists(st.sampled_from(TRICKY) | st.text(max_size=3), max_size=4).map("".join)
values = st.recursive(
    st.integers(-(2**40), 2**40) | st.booleans() | st.none() | texts | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
times_us = st.integers(0, 7 * 10**12).map(lambda ns: ns / 1000)
events = st.builds(
    lambda head, name, ts, dur, args: {**head, "name": name, "ts": ts, "dur": dur, "args": args},
    st.sampled_from([{"ph": "X", "cat": "cpu_op"}, {"ph": "M"}, {"ph": "f", "id": 7}]),
    texts,
    times_us,
    times_us,
    # the second one holds what looks like a boundary between events
    st.fixed_dictionaries({"x": values, "y": st.lists(st.dictionaries(st.just("a"), values, min_size=1))}),
)
layouts = st.sampled_from([(",", None), (", ", None), (",\n  ", 1), (" ,\t", None)])
blocks = st.sampled_from([7, 64, 300, 4096])
FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def laid_out(listed, layout):
    """The document as text, and where each event ends in it."""
    separator, indent = layout
    text, ends = '{"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [', []
    for number, event in enumerate(listed):
        text += (separator if number else "\n") + json.dumps(event, indent=indent, ensure_ascii=False)
        ends.append(len(text.encode()))
    return text.encode(), ends


def read(path, block_bytes):
    """The stream after it is used up, and its events as (phase, name, ts, dur)."""
    stream = EventStream(path)
    found = [e for block in stream.blocks(block_bytes) for e in block.events]
    return stream, [(e.ph, e.name, float(e.ts), float(e.dur)) for e in found]


def as_read(listed):
    return [(e["ph"], e["name"], e["ts"], e["dur"]) for e in listed]


@FAST
@given(listed=st.lists(events, max_size=12), layout=layouts, block_bytes=blocks)
def test_every_event_is_read_as_json_reads_it(tmp_path, listed, layout, block_bytes):
    text, _ = laid_out(listed, layout)
    text += b'], "traceName": "x", "more": [{"a": 1}, {"b": 2}]}'
    (tmp_path / "x.json").write_bytes(text)
    stream, found = read(tmp_path / "x.json", block_bytes)
    assert found == as_read(json.loads(text)["traceEvents"])
    assert (stream.num_events, stream.num_dropped, stream.is_cut, stream.is_mixed) == (len(listed), 0, False, False)
    assert json.loads(stream.head + b'"e": [' + b"]" + stream.tail)["more"] == [{"a": 1}, {"b": 2}]


@FAST
@given(listed=st.lists(events, min_size=1, max_size=12), layout=layouts, block_bytes=blocks, data=st.data())
def test_everything_whole_before_a_cut_is_kept(tmp_path, listed, layout, block_bytes, data):
    text, ends = laid_out(listed, layout)
    cut = data.draw(st.integers(text.index(b"[") + 1, len(text)))
    (tmp_path / "x.json").write_bytes(text[:cut])
    stream, found = read(tmp_path / "x.json", block_bytes)
    num_whole = sum(end <= cut for end in ends)
    assert found == as_read(listed[:num_whole])
    assert stream.is_cut
    rest = text[([0, *ends][num_whole]) : cut].strip(b" \t\r\n,")
    if num_whole:
        assert stream.num_dropped >= (rest != b"")


@FAST
@given(listed=st.lists(events, min_size=2, max_size=12), block_bytes=blocks, data=st.data())
def test_a_damaged_event_takes_no_other_with_it(tmp_path, listed, block_bytes, data):
    broken = data.draw(st.integers(0, len(listed) - 1))
    parts = [json.dumps(e) for e in listed]
    parts[broken] = '{"ph": "X", "name": "a "quoted" {name}", "ts": 1.0, "dur": 2.0, "args": {}}'
    (tmp_path / "x.json").write_text('{"traceEvents": [' + ", ".join(parts) + "]}")
    stream, found = read(tmp_path / "x.json", block_bytes)
    assert found == as_read(listed[:broken] + listed[broken + 1 :])
    assert (stream.num_dropped, stream.first_drop, stream.is_cut) == (1, broken, False)


@FAST
@given(listed=st.lists(events, min_size=1, max_size=12), block_bytes=blocks, cut=st.floats(0.05, 1))
def test_gzip_cut_anywhere_keeps_what_is_inflated(tmp_path, listed, block_bytes, cut):
    text, _ = laid_out(listed, (", ", None))
    packed = gzip.compress(text + b"]}")
    num_bytes = int(len(packed) * cut)
    (tmp_path / "x.json").write_bytes(packed[:num_bytes])
    try:
        stream, found = read(tmp_path / "x.json", block_bytes)
    except InputError as error:
        assert "the gzip stream is cut" in str(error)
        return
    assert found == as_read(listed[: len(found)])
    assert (stream.source.damage != "") == (num_bytes < len(packed))
    assert len(found) == len(listed) or stream.is_cut


@given(parts=st.lists(texts.map(lambda t: {"ph": "X", "name": t}), min_size=2, max_size=6))
def test_boundaries_are_between_events_only(parts):
    text = b", ".join(json.dumps(p, ensure_ascii=False).encode() for p in parts)
    comma, brace = last_boundary(text)
    assert json.loads(text[brace:]) == parts[-1]
    assert json.loads(b"[" + text[:comma] + b"]") == parts[:-1]


def test_every_gzip_member_is_read_and_padding_is_not(tmp_path):
    head, tail = b'{"traceEvents": [', json.dumps(timed("a", 1.5, 1)).encode() + b"]}"
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(head) + gzip.compress(tail) + b"\0" * 512)
    stream, found = read(path, 64)
    assert (found, stream.is_cut, stream.source.damage) == ([("X", "a", 1.5, 1.0)], False, "")


def test_large_gzip_members_do_not_run_into_each_other(tmp_path):
    listed = [timed(f"operator {i * 7919 % 10007}", i + 0.5, 1.0) for i in range(4000)]
    text, _ = laid_out(listed, (", ", None))
    text += b"]}"
    half = len(text) // 2
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    for block_bytes in (500, 1 << 20):
        stream, found = read(path, block_bytes)
        assert found == as_read(listed)
        assert not stream.is_cut


def test_damaged_gzip_is_said(tmp_path):
    text, _ = laid_out([timed(f"{i * 7919 % 10007}", i + 0.5, 1.0) for i in range(4000)], (", ", None))
    packed = bytearray(gzip.compress(text + b"]}"))
    packed[-6] ^= 1  # the checksum
    path = tmp_path / "x.json.gz"
    path.write_bytes(packed)
    trace = read_trace(path, rank=0, block_bytes=1 << 12)
    assert trace.is_cut
    assert trace.num_events > 3900
    assert trace.warnings[0].startswith("truncated: the gzip stream is damaged (")


def test_nesting_without_end_is_one_damaged_event(tmp_path):
    deep = '{"ph": "X", "name": "deep", "ts": 1, "args": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    good = json.dumps(timed("good", 1.5, 1))
    (tmp_path / "x.json").write_text('{"traceEvents": [' + ", ".join([good, deep, good]) + "]}")
    stream, found = read(tmp_path / "x.json", 1 << 20)
    assert found == [("X", "good", 1.5, 1.0)] * 2
    assert stream.num_dropped == 1


def test_a_byte_order_mark_and_blank_lines_come_first(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf\n\n" + json.dumps([timed("a", 1.5, 1)]).encode() + b"\n")
    stream, found = read(tmp_path / "x.json", 1)
    assert (found, stream.is_array, stream.is_cut) == ([("X", "a", 1.5, 1.0)], True, False)


@pytest.mark.parametrize("is_array", [False, True])
def test_a_file_that_ends_after_a_whole_event(tmp_path, is_array):
    text = ("[" if is_array else '{"traceEvents": [') + json.dumps(timed("a", 1.5, 1)) + ",\n"
    (tmp_path / "x.json").write_text(text)
    stream, found = read(tmp_path / "x.json", 16)
    assert (found, stream.num_dropped, stream.is_cut) == ([("X", "a", 1.5, 1.0)], 0, not is_array)


def test_blocks_do_not_change_the_result(tmp_path):
    listed = [timed(f"op {i % 7}", i * 1.5, 1.25, cat="cpu_op" if i % 3 else "python_function") for i in range(300)]
    path = write(tmp_path / "x.json", listed)
    whole = read_trace(path, rank=0)
    assert whole.events.num_rows == 200
    assert whole.num_python_functions == 100
    starts = (whole.events["start_ns"].to_numpy() - BASE_NS).tolist()
    assert all(a < b for a, b in pairwise(starts))
    for block_bytes in (64, 1000, 10_000):
        again = read_trace(path, rank=0, block_bytes=block_bytes)
        assert again.events.equals(whole.events)
        assert (again.num_events, again.warnings) == (whole.num_events, whole.warnings)


@pytest.mark.parametrize("every", [40_000, 200])
def test_memory_goes_with_the_events_kept_not_with_the_file(tmp_path, every):
    function = json.dumps(timed("a function", 1.5, 1.0, cat="python_function", what="x" * 200))
    shapes = {"Input Dims": [[8, 8]], "Input type": ["float"]}
    comms = json.dumps(timed("record_param_comms", 1.5, 1.0, **{"Collective name": "allreduce", **shapes}))
    path = tmp_path / "x.json.gz"
    num_events = 40_000
    listed = [function if number % every else comms for number in range(num_events)]
    text = '{"traceEvents": [' + ", ".join(listed) + "]}"
    path.write_bytes(gzip.compress(text.encode(), 1))
    read_trace(write(tmp_path / "small.json", [timed("a", 1.5, 1.0)]))  # modules loaded on first use are not counted
    tracemalloc.start()
    try:
        trace = read_trace(path, rank=0, block_bytes=1 << 16)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trace.events.num_rows == num_events // every
    assert trace.num_python_functions == num_events - num_events // every
    assert peak_bytes < len(text) / 8
