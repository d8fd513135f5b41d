"""HTA itself against our breakdown, on every trace that others recorded; where they differ, the reason is recomputed.

HTA runs as `fsdp-profile hta` runs it: no rounding of times, the last ProfilerStep included. For each trace that
differs, `by_htas_rules` sweeps the events of the file as HTA does. Without any of HTA's rules it gives our numbers,
with those named it gives HTA's: so the reasons are complete.
"""

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from enum import Flag, auto
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from ingest.conftest import find_traces

from fsdp_profile.analysis.hta.comparison import Ours, hta_ratios, is_same, ours_by_rank
from fsdp_profile.analysis.hta.runner import HtaTable, tables_of_traces
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.spans.intervals import covered_ns, length_ns, union
from fsdp_profile.ingest.imported.run import import_files
from fsdp_profile.ingest.kineto.names import kernel_kind

TRACES = find_traces()

pytestmark = [
    pytest.mark.skipif(TRACES is None, reason="no recorded traces: set FSDP_PROFILE_TRACES to their folder"),
    pytest.mark.skipif(importlib.util.find_spec("hta") is None, reason="HTA is not installed: the extra [hta]"),
]


class Rule(Flag):
    """What HTA does otherwise. Each is in the source of traceinsight 0.6.1."""

    NONE = 0
    DROPS = auto()
    """common/trace.py, _filter_irrelevant_gpu_kernels: device work is merged with host events on its correlation, so
    what was launched before the recording began is dropped; only with two ProfilerSteps or more."""
    NAMES = auto()
    """common/types.py, CommunicateKernelGroupingPattern: communication is what its kernel's name says."""
    ANY_STREAM = auto()
    """analyzers/*.py, `trace_df["stream"].ne(-1)`: an event of any category with a stream is a kernel."""


class Percents(NamedTuple):
    """In percent to two decimals, as HTA gives them."""

    overlap: float | None
    idle: float | None
    compute: float | None


class Different(NamedTuple):
    """A trace on which the two differ."""

    hta: Percents
    ours: Percents
    rules: Rule
    reason: str


FOLDERS = {"dlrm": "dlrm_v100_8ranks", "tracelens": "tracelens", "hta": "hta", "other": "other"}

SAME = {
    "dlrm/worker0": Percents(4.50, 49.34, 7.95),
    "dlrm/worker1": Percents(2.47, 34.28, 6.65),
    "dlrm/worker2": Percents(7.88, 62.08, 9.41),
    "dlrm/worker3": Percents(3.31, 43.20, 6.58),
    "dlrm/worker4": Percents(0.56, 53.57, 6.79),
    "dlrm/worker5": Percents(0.64, 55.64, 6.35),
    "dlrm/worker6": Percents(7.56, 61.80, 9.21),
    "dlrm/worker7": Percents(9.51, 75.75, 9.66),
    "hta/control": Percents(46.24, 16.36, 60.56),
    "hta/nccl_data": Percents(15.61, 76.16, 17.51),
    "hta/mi250": Percents(None, 98.33, 1.24),
    "hta/rank-0.": Percents(None, 1.58, 97.53),
}

DIFFERENT = {
    "tracelens/resnet_act_checkpoint": Different(
        hta=Percents(25.25, 0.50, 34.03),
        ours=Percents(22.22, 2.96, 29.73),
        rules=Rule.DROPS,
        reason="HTA drops 968 of 3,653 kernels and copies, 5 of 17 collectives among them: the device ran 30 ms behind "
        "the host, so they were launched before the recording began.",
    ),
    "hta/rank0.": Different(
        hta=Percents(1.47, 69.01, 14.62),
        ours=Percents(1.36, 64.40, 17.13),
        rules=Rule.DROPS,
        reason="HTA drops 872 of 7,747 kernels and copies, 5 of 80 collectives among them: they were launched before "
        "the recording began.",
    ),
    "other/deepseek_v3": Different(
        hta=Percents(None, 0.39, 99.60),
        ours=Percents(96.32, 0.39, 96.38),
        rules=Rule.NAMES,
        reason="All 32 communication kernels are DeepEP's: to HTA they are compute, and there is no communication.",
    ),
    "tracelens/eager_trace": Different(
        hta=Percents(0.0, 86.19, 12.84),
        ours=Percents(0.0, 86.27, 10.24),
        rules=Rule.NAMES | Rule.ANY_STREAM,
        reason="73 of 74 communication kernels are multimem_all_reduce_kernel, compute to HTA; and one host operator "
        "of Triton has a stream in its arguments, so HTA counts its time on the host as a kernel's.",
    ),
}

FAILS = {
    "hta/rank-34": {
        "temporal breakdown": "IndexError: single positional indexer is out-of-bounds",
        "idle time": "ValueError: No objects to concatenate",
    },
    "hta/rank_not_found": {
        "temporal breakdown": "IndexError: single positional indexer is out-of-bounds",
        "idle time": "ValueError: No objects to concatenate",
    },
}
"""Recorded on CPU: HTA looks for device streams, takes the first of none, and fails. Its overlap is 0 / 0."""

ON_CPU = {"hta/rank-34": Percents(0.0, 12.78, 0.0), "hta/rank_not_found": Percents(None, 1.31, 98.69)}
"""Ours of these: operators of the busiest thread are the compute."""


class Both(NamedTuple):
    path: Path
    tables: list[HtaTable]
    ours: Ours
    rank: int

    @property
    def hta(self) -> Percents:
        found = hta_ratios(self.tables)[self.rank]
        return percents(found.overlap, found.idle, found.compute)


def percents(*ratios: float | None) -> Percents:
    return Percents(*(None if ratio is None else round(100 * ratio, 2) for ratio in ratios))


def path_of(name: str) -> Path:
    assert TRACES is not None
    folder, _, start = name.partition("/")
    [path] = (TRACES / FOLDERS[folder]).glob(f"{start}*json.gz")
    return path


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """A trace by name, imported and given to HTA under the rank it was imported as; the eight of DLRM together."""
    made: dict[str, Both] = {}

    def get(name: str) -> Both:
        if name not in made:
            names = [n for n in SAME if n.startswith("dlrm/")] if name.startswith("dlrm/") else [name]
            paths = [path_of(n) for n in names]
            folder = tmp_path_factory.mktemp("run")
            import_files(paths, folder, name="imported")
            run = load_run(folder)
            traces = dict(zip(run.ranks, paths, strict=True))
            ours, tables = ours_by_rank(run, traces), tables_of_traces(traces)
            for rank, n in zip(run.ranks, names, strict=True):
                made[n] = Both(path=traces[rank], tables=tables, ours=ours[rank], rank=rank)
        return made[name]

    return get


def test_the_page_says_the_same() -> None:
    page = " ".join((Path(__file__).resolve().parents[3] / "docs" / "hta.md").read_text(encoding="utf-8").split())

    def row(name: str, hta: Percents, ours: Percents) -> str:
        both = [f"{'-' if p is None else f'{p:.2f}'}" for pair in zip(hta, ours, strict=True) for p in pair]
        return f"| {path_of(name).name.partition('.')[0]} | {' | '.join(both)} |"

    for name, same in SAME.items():
        assert row(name, same, same) in page
    for name, different in DIFFERENT.items():
        assert row(name, different.hta, different.ours) in page
        assert different.reason in page
    for name, ours in ON_CPU.items():
        assert row(name, Percents(None, None, None), ours) in page


def test_every_trace_is_here() -> None:
    known = sorted(path_of(name) for name in (*SAME, *DIFFERENT, *FAILS))
    assert TRACES is not None
    assert known == sorted(TRACES.rglob("*.json.gz"))


@pytest.mark.parametrize("name", SAME)
def test_ours_are_htas(both: Callable[[str], Both], name: str) -> None:
    found = both(name)
    assert found.hta == SAME[name]
    ratios = found.ours.ratios
    for hta, ours in zip(found.hta, (ratios.overlap, ratios.idle, ratios.compute), strict=True):
        assert (hta is None and ours is None) or is_same(None if hta is None else hta / 100, ours)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_explained_by_htas_rules(both: Callable[[str], Both], name: str) -> None:
    found, expected = both(name), DIFFERENT[name]
    ratios = found.ours.ratios
    assert (found.hta, percents(ratios.overlap, ratios.idle, ratios.compute)) == (expected.hta, expected.ours)
    assert by_htas_rules(found.path, Rule.NONE) == expected.ours
    assert by_htas_rules(found.path, expected.rules) == expected.hta
    for rule in (Rule.DROPS, Rule.NAMES, Rule.ANY_STREAM):
        if rule in expected.rules:
            assert by_htas_rules(found.path, expected.rules ^ rule) != expected.hta, f"{rule} explains nothing"


def test_the_reasons_numbers_are_counted_by_the_verb(both: Callable[[str], Both]) -> None:
    counted = {
        name: (d.num_dropped, d.num_works, d.num_taken_for_compute, d.num_collectives)
        for name in DIFFERENT
        for d in [both(name).ours.differences]
    }
    assert counted == {
        "tracelens/resnet_act_checkpoint": (968, 3_653, 0, 17),
        "hta/rank0.": (872, 7_747, 0, 80),
        "other/deepseek_v3": (0, 983, 32, 32),
        "tracelens/eager_trace": (0, 929, 73, 74),
    }
    assert len(events_of(path_of("tracelens/eager_trace"), Rule.ANY_STREAM)) == 929 + 1
    for name, left in (("tracelens/resnet_act_checkpoint", 12), ("hta/rank0.", 75)):
        kept = events_of(path_of(name), Rule.DROPS)
        assert sum(kernel_kind(e["name"]) is not None for e in kept) == left


@pytest.mark.parametrize("name", FAILS)
def test_a_recording_on_cpu_is_not_for_hta(both: Callable[[str], Both], name: str) -> None:
    found = both(name)
    assert {t.name: t.error for t in found.tables if t.error is not None} == FAILS[name]
    assert (found.hta.overlap, found.hta.idle) == (None, None)
    ratios = found.ours.ratios
    assert percents(ratios.overlap, ratios.idle, ratios.compute) == ON_CPU[name]
    assert found.ours.breakdown is not None
    assert found.ours.breakdown.host_bound_ns is None


@pytest.mark.parametrize(
    ("name", "idle_us", "hta_host_wait_us", "host_bound_us"),
    [("hta/mi250", 8_763, 8_763, 8_671), ("hta/rank-0.", 7_575, 1_291, 1_732)],
)
def test_idle_of_one_stream_is_the_devices_and_host_wait_is_another_question(
    both: Callable[[str], Both], name: str, idle_us: int, hta_host_wait_us: int, host_bound_us: int
) -> None:
    """HTA gives the host a gap whole when the next launch began after it did. We give it what passes until a launch
    has returned: less where the kernel begins late (mi250), more where calls last long (rank-0)."""
    found = both(name)
    [table] = [t for t in found.tables if t.name == "idle time"]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert len({row["stream"] for row in rows}) == 1
    assert round(sum(row["idle_time"] for row in rows)) == idle_us
    assert round(sum(row["idle_time"] for row in rows if row["idle_category"] == "host_wait")) == hta_host_wait_us
    ours = found.ours.breakdown
    assert ours is not None and ours.host_bound_ns is not None
    assert (round(ours.idle_ns / 1000), round(ours.host_bound_ns / 1000)) == (idle_us, host_bound_us)


DEFAULTS = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="").get_comm_comp_overlap(visualize=False)
print(found["comp_comm_overlap_pctg"][0])
"""


@pytest.mark.parametrize(
    ("environment", "overlap"),
    [({"HTA_DISABLE_NS_ROUNDING": "1"}, "14.76"), ({"HTA_DISABLE_NS_ROUNDING": "0"}, "14.31")],
)
def test_htas_own_defaults_leave_out_a_step_and_round(environment: dict[str, str], overlap: str) -> None:
    """nccl_data: 15.61 % over its three steps; without the last one 14.76; with times rounded to microseconds 14.31."""
    command = [sys.executable, "-c", DEFAULTS, str(path_of("hta/nccl_data"))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split()[-1] == overlap


HTA_COMMUNICATION = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
HTA_MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}


@lru_cache(maxsize=1)
def timed_events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]


def events_of(path: Path, rules: Rule) -> list[dict[str, Any]]:
    """The events of a trace that are device work by these rules."""
    timed = timed_events(path)
    on_host = {e["args"].get("correlation") for e in timed if "args" in e and e["cat"] not in DEVICE}
    return [
        e
        for e in timed
        if (e["cat"] in DEVICE or (Rule.ANY_STREAM in rules and e.get("args", {}).get("stream", -1) != -1))
        and (Rule.DROPS not in rules or e["args"].get("correlation") in on_host)
    ]


def by_htas_rules(path: Path, rules: Rule) -> Percents:
    """Overlap, idle and compute by interval sweeps over the file's own events; without rules ours."""
    events = events_of(path, rules)
    start = np.array([round(e["ts"] * 1000) for e in events])
    end = start + np.array([round(e["dur"] * 1000) for e in events])
    names = [e["name"] for e in events]
    by_name = Rule.NAMES in rules
    is_communication = np.array(
        [bool(HTA_COMMUNICATION.match(n)) if by_name else kernel_kind(n) is not None for n in names]
    )
    computes = ~is_communication & np.array([not HTA_MEMORY.match(n) for n in names])
    busy = union(start, end)
    span = busy[1][-1] - busy[0][0]
    compute = union(start[computes], end[computes])
    communication = union(start[is_communication], end[is_communication])
    total = length_ns(*communication)
    return percents(
        int(covered_ns(compute, *communication).sum()) / total if total else None,
        1 - length_ns(*busy) / span,
        length_ns(*compute) / span,
    )
