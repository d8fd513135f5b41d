"""The Chrome trace: every rank's tracks and counters, on one clock, in the form the readers ask for."""

import gzip
import json
import math
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from builder import RunBuilder
from recording import ROOT

from fsdp_profile.analysis.memory.ledger import peak, timeline
from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import CollectiveKind, Phase, SpanKind
from fsdp_profile.export.perfetto import trace_bytes

SAMPLES = sorted(p.name for p in (ROOT / "sample_runs").iterdir() if p.is_dir())
NAMES = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def checked(content: bytes) -> list[dict]:
    """The events of a trace, each in the form of the Trace Event Format."""
    document = json.loads(content)
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in document["otherData"].values())
    open_until = defaultdict(list)
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert event["ts"] >= 0 and math.isfinite(event["ts"])
        if event["ph"] == "M":
            assert event["name"] in NAMES
        elif event["ph"] == "C":
            assert event["args"] and all(isinstance(v, int) and v >= 0 for v in event["args"].values())
        else:
            assert event["ph"] == "X" and event["dur"] >= 0
            stack = open_until[event["pid"], event["tid"]]
            while stack and stack[-1] <= event["ts"] + 1e-3:
                stack.pop()
            end = event["ts"] + event["dur"]
            assert not stack or end <= stack[-1] + 1e-3, f"{event['name']} overlaps the slice before it"
            stack.append(end)
    return document["traceEvents"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_run_passes_the_format_with_nothing_lost(name):
    run = load_run(ROOT / "sample_runs" / name)
    events = checked(trace_bytes(run))
    count = Counter((e["pid"], e["ph"]) for e in events)
    for rank in run.ranks:
        spans = sum(run.table(t, rank=rank).num_rows for t in ("steps", "phases", "unit_spans", "collectives"))
        assert count[rank, "X"] == spans
        assert count[rank, "C"] == run.table("memory_samples", rank=rank).num_rows


def test_counters_stack_to_the_peak():
    run = load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    stacks = [e["args"] for e in checked(trace_bytes(run)) if e["ph"] == "C" and e["pid"] == 0]
    highest = max(stacks, key=lambda stack: sum(stack.values()))
    found = peak(run, rank=0)
    assert {c: size for c, size in highest.items() if size} == {str(c): size for c, size in found.by_category.items()}
    assert set(stacks[0]) == {str(c) for c, live in timeline(run, rank=0).by_category.items() if live.any()}


def small(offset: int = 0) -> RunBuilder:
    """Two ranks; what rank 1 says is `offset` late. Two collectives at once, one unit within another."""
    b = RunBuilder().set(ranks=[RankRecord(rank=r, host=f"node{r}") for r in (0, 1)])
    for rank in (0, 1):
        t = 1_000_000 + offset * rank
        b.rank(rank).step(0, t, t + 900_000).phase(Phase.FORWARD, t, t + 800_000).unit("").unit("layers.0")
        b.span(0, SpanKind.FORWARD, t + 100, t + 700_000).span(1, SpanKind.FORWARD, t + 200_000, t + 300_000)
        b.span(1, SpanKind.UNSHARDED, t + 100_000, t + 400_000, size=64)
        for n in range(4):
            start = t + 100_000 * (n + 1)
            b.collective(CollectiveKind.ALL_GATHER, start, start + 150_000, unit=1, size_bytes=64)
        b.alloc(at=t + 500, free=t + 600_000, size=2048)
    return b


def test_tracks_are_named_and_sorted_by_rank():
    events = checked(trace_bytes(small().build()))
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] in ("process_name", "thread_name")}
    assert [named[rank, 0] for rank in (0, 1)] == ["rank 0 on node0", "rank 1 on node1"]
    assert [name for (rank, tid), name in named.items() if rank == 0 and tid] == [
        "steps", "phases", "units, host", "unsharded layers.0", "collectives", "collectives (2)"
    ]  # fmt: skip
    gathers = [e for e in events if e["name"] == "ALL_GATHER layers.0" and e["pid"] == 0]
    assert [e["tid"] - gathers[0]["tid"] for e in gathers] == [0, 0, 1, 1], "those at once have lanes of their own"
    assert gathers[0]["args"] == {"size_bytes": 64, "group_size": 2, "transport": "gloo:test"}


def test_ranks_are_on_one_clock():
    events = checked(trace_bytes(small(offset=5_000_000).build()))
    ends = defaultdict(list)
    for event in events:
        if event["name"] == "ALL_GATHER layers.0":
            ends[event["pid"]].append(round(event["ts"] + event["dur"], 3))
    assert ends[0] == ends[1]
    document = json.loads(trace_bytes(small(offset=5_000_000).build()))
    assert document["otherData"]["clock"] == "one clock for all ranks"
    assert document["otherData"]["start_unix_ns"] == "1000000"


def test_the_allocators_totals_are_counters_where_they_were_recorded():
    run = RunBuilder().totals(reserved=4096, active=3000).alloc(at=1, size=2048).build()
    counters = {e["name"]: e["args"] for e in checked(trace_bytes(run)) if e["ph"] == "C"}
    assert counters == {
        "live bytes": {"ACTIVATION": 2048},
        "reserved bytes": {"bytes": 4096},
        "active bytes": {"bytes": 3000},
    }


def test_gzip_holds_the_same_and_is_the_same_each_time(capsys, tmp_path: Path):
    source = str(ROOT / "sample_runs" / "gpt-ddp-2ranks")
    for name in ("a.json", "b.perfetto.json.gz", "c.json.gz"):
        assert main(["export", source, "-o", str(tmp_path / name)]) == 0
    packed = (tmp_path / "b.perfetto.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert packed == (tmp_path / "c.json.gz").read_bytes()


def test_an_empty_run_is_an_empty_trace():
    run = RunBuilder().build()
    assert [e["ph"] for e in checked(trace_bytes(run)) if e["ph"] in "CX"] == ["X", "X"]


def test_a_category_of_bytes_keeps_its_name_over_ranks():
    b = RunBuilder().rank(0).alloc(at=1, size=8, category=Category.BUCKET)
    run = b.rank(1).alloc(at=1, size=8, category=Category.BUFFER).build()
    assert [e["args"] for e in checked(trace_bytes(run)) if e["ph"] == "C"] == [{"BUCKET": 8}, {"BUFFER": 8}]
