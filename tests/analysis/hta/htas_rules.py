import gzip
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from analysis.hta.recorded_traces import Percents, Rule, percents

from fsdp_profile.analysis.spans.intervals import covered_ns, length_ns, union
from fsdp_profile.ingest.kineto.names import kernel_kind

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
