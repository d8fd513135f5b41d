"""CPU time of a step with and without recording: the same script bare, with hooks, with allocator events, with all.

The four are run in turn, several rounds; ratios are taken within a round, and the median over rounds is printed. CPU
time of the rank, all its threads: on a shared machine wall time says more about the neighbours. "forward + backward" is
what the recording adds inside a step; "whole step" has also the pause after it, in which a recorded step is written.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "scripts" / "timed_fsdp2.py"
STEPS = 13
WARM_UP = 3
MODES = {
    "hooks and tags": ["--no-allocator", "--no-kineto"],
    "+ allocator events": ["--no-kineto"],
    "+ Kineto traces (default)": [],
}


def step_times(command: list[str]) -> tuple[float, float]:
    """Median CPU ns of forward + backward, and of the whole step, after the warm-up."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command, str(SCRIPT), "--steps", str(STEPS)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = json.loads(done.stdout.splitlines()[-1])[WARM_UP:]
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    inside: dict[str, list[float]] = {mode: [] for mode in MODES}
    whole: dict[str, list[float]] = {mode: [] for mode in MODES}
    bare_ns = []
    for _ in range(rounds):
        bare = step_times(["torch.distributed.run", "--standalone", "--nproc-per-node=2"])
        bare_ns.append(bare)
        for mode, flags in MODES.items():
            with tempfile.TemporaryDirectory() as folder:
                command = ["fsdp_profile", "run", "-n", "2", "--steps", f"0:{STEPS + 1}", "-o", f"{folder}/run", *flags]
                found = step_times(command)
            inside[mode].append(found[0] / bare[0])
            whole[mode].append(found[1] / bare[1])
    print(f"bare: {statistics.median(b[1] for b in bare_ns) / 1e6:.1f} ms of CPU a step (one of 2 gloo ranks, median)")
    print(f"{'recorded':28}{'forward + backward':>20}{'whole step':>14}")
    for mode in MODES:
        print(f"{mode:28}{statistics.median(inside[mode]):>19.2f}x{statistics.median(whole[mode]):>13.2f}x")


if __name__ == "__main__":
    main()
