"""HTA itself against our breakdown, on every trace that others recorded; where they differ, the reason is recomputed.

HTA runs as `fsdp-profile hta` runs it: no rounding of times, the last ProfilerStep included. For each trace that
differs, `by_htas_rules` sweeps the events of the file as HTA does. Without any of HTA's rules it gives our numbers,
with those named it gives HTA's: so the reasons are complete.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from analysis.hta.htas_rules import by_htas_rules, events_of
from analysis.hta.recorded_traces import DIFFERENT, FAILS, ON_CPU, SAME, TRACES, Percents, Rule, path_of, percents

from fsdp_profile.analysis.hta.comparison import Ours, hta_ratios, is_same, ours_by_rank
from fsdp_profile.analysis.hta.runner import HtaTable, tables_of_traces
from fsdp_profile.analysis.run import load_run
from fsdp_profile.ingest.imported.run import import_files
from fsdp_profile.ingest.kineto.names import kernel_kind

pytestmark = [
    pytest.mark.skipif(TRACES is None, reason="no recorded traces: set FSDP_PROFILE_TRACES to their folder"),
    pytest.mark.skipif(importlib.util.find_spec("hta") is None, reason="HTA is not installed: the extra [hta]"),
]


class Both(NamedTuple):
    path: Path
    tables: list[HtaTable]
    ours: Ours
    rank: int

    @property
    def hta(self) -> Percents:
        found = hta_ratios(self.tables)[self.rank]
        return percents(found.overlap, found.idle, found.compute)


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
