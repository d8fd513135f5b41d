"""CPU seconds and peak memory of reading a Kineto trace: ours beside json.load, medians and their ratios.

One step of a synthetic trace in Kineto's own layout is repeated in a temporary folder; every reading is a
process of its own, and the readers take turns. Memory is the peak above what the process held before.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

READERS: Final = ("ours", "json")
OPERATORS_PER_STEP: Final = 400
STEP_US: Final = 50_000.0
HEAD: Final = """
{
  "schemaVersion": 1,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1, "pg_config":
    [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}]},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""  # noqa: E501
TAIL: Final = '\n  ],\n  "traceName": "synthetic.json"\n}\n'
EVENT: Final = """  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      {args}
    }}
  }}"""
FLOW: Final = """  {{
    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }}"""
COLLECTIVE: Final = (
    '"Collective name": "_allgather_base", "In msg nelems": 1048576, "Out msg nelems": 8388608, "Group size": 8, '
    '"dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg"'
)


def step_events(step: int) -> Iterator[str]:
    """One training step: Python functions, operators, launches, flows, kernels, and some all-gathers."""
    for number in range(OPERATORS_PER_STEP):
        key = step * OPERATORS_PER_STEP + number
        ts = 1000.0 + step * STEP_US + number * 100 + 0.125
        is_gather = number % 40 == 0
        name = "record_param_comms" if is_gather else f"aten::operator_{number % 97}"
        kernel = (
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            if is_gather
            else f"void at::native::vectorized_elementwise_kernel<4, Functor{number % 61}<float>, 3>(int, float*)"
        )
        extra = f", {COLLECTIVE}" if is_gather else ""
        inputs = '"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]'
        host = {"pid": 4242, "tid": 4242}
        device = f'"External id": {key}, "device": 0, "stream": 7, "correlation": {key}, "grid": [8, 1, 1]{extra}'
        for depth in range(2):
            args = f'"Python parent id": {key}, "Python id": {key + 1}, "Ev Idx": {key}'
            function = f"torch/nn/modules/module.py({1500 + depth}): _call_impl {number % 13}"
            yield EVENT.format(cat="python_function", name=function, ts=ts, dur=90, args=args, **host)
        args = f'"External id": {key}, "Record function id": 0, {inputs}, "Ev Idx": {key}{extra}'
        yield EVENT.format(cat="cpu_op", name=name, ts=ts + 1, dur=80.5, args=args, **host)
        args = f'"External id": {key}, "cbid": 211, "correlation": {key}'
        yield EVENT.format(cat="cuda_runtime", name="cudaLaunchKernel", ts=ts + 10, dur=4.25, args=args, **host)
        yield FLOW.format(ph="s", id=key, ts=ts + 10, **host)
        yield FLOW.format(ph="f", id=key, ts=ts + 50, pid=0, tid=7)
        yield EVENT.format(cat="kernel", name=kernel, pid=0, tid=7, ts=ts + 50, dur=60.75, args=device)


def write_trace(path: Path, num_steps: int) -> int:
    """Write the trace; the number of its events."""
    num_events = 0
    with path.open("w") as file:
        file.write(HEAD)
        for step in range(num_steps):
            events = list(step_events(step))
            file.write((",\n" if step else "") + ",\n".join(events))
            num_events += len(events)
        file.write(TAIL)
    return num_events


def memory_bytes(field: str) -> int:
    """A field of /proc/self/status: VmRSS, or VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def measure(reader: str, path: Path) -> tuple[float, int]:
    """CPU seconds and bytes of peak memory of one reading in this process, imports apart."""
    if reader == "ours":
        import numpy as np
        import pyarrow as pa

        from fsdp_profile.ingest.kineto.reader import read_trace

        pa.array(np.zeros(1))  # imports what Arrow imports on first use
        before = memory_bytes("VmRSS")
        start = time.process_time()
        read_trace(path)
    else:
        before = memory_bytes("VmRSS")
        start = time.process_time()
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            json.load(file)
    return time.process_time() - start, memory_bytes("VmHWM") - before


def measured(reader: str, path: Path) -> tuple[float, int]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--reader", reader, str(path)]
    cpu, peak = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    return float(cpu), int(peak)


def compare(path: Path, num_events: int, num_runs: int) -> None:
    """Print one line per reader, and the ratio within each turn."""
    size_mb = path.stat().st_size / 1e6
    print(f"{path.name}: {size_mb:.0f} MB, {num_events:,} events, medians of {num_runs} runs")
    turns = [{reader: measured(reader, path) for reader in READERS} for _ in range(num_runs)]
    for reader in READERS:
        cpu = statistics.median(turn[reader][0] for turn in turns)
        peak_mb = statistics.median(turn[reader][1] for turn in turns) / 1e6
        print(f"  {reader:5}  {cpu:7.2f} CPU s  {num_events / cpu / 1e6:6.2f} M events/s  {peak_mb:7.0f} MB peak")
    faster = statistics.median(turn["json"][0] / turn["ours"][0] for turn in turns)
    smaller = statistics.median(turn["json"][1] / turn["ours"][1] for turn in turns)
    print(f"  ours takes 1/{faster:.1f} of the CPU time and 1/{smaller:.1f} of the memory of json.load")


def main() -> None:
    """Write the traces, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="?", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=60, help="copies of the step (60: some 40 MB)")
    parser.add_argument("--runs", type=int, default=5, help="readings by each reader")
    options = parser.parse_args()
    if options.reader:
        print(*measure(options.reader, options.path))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        num_events = write_trace(path, options.steps)
        compare(path, num_events, options.runs)
        packed = path.with_suffix(".json.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 6))
        compare(packed, num_events, options.runs)


if __name__ == "__main__":
    main()
