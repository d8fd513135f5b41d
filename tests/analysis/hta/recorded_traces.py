"""The traces that others recorded: what HTA says of each, what we say, and why the two differ."""

from enum import Flag, auto
from pathlib import Path
from typing import NamedTuple

from ingest.conftest import find_traces

TRACES = find_traces()


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


def percents(*ratios: float | None) -> Percents:
    return Percents(*(None if ratio is None else round(100 * ratio, 2) for ratio in ratios))


def path_of(name: str) -> Path:
    assert TRACES is not None
    folder, _, start = name.partition("/")
    [path] = (TRACES / FOLDERS[folder]).glob(f"{start}*json.gz")
    return path
