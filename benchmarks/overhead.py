"""CPU time of a step with and without recording, in one process: the window ends half-way, and the steps go on.

For each source the same script trains 30 recorded steps and 30 bare ones after them (medians of each), several rounds;
"control" is the script without us, its first half against its second. Ratios are taken within a process, where the
machine's noise is least, and printed as the median over rounds with the lowest and the highest. CPU time of the rank,
all its threads: on a shared machine wall time says more about the neighbours. "forward + backward" is what the
recording adds inside a step; "whole step" has also the pause after it, in which a recorded step is written.
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
WARM_UP = 3
MEASURED = 30
WINDOW = WARM_UP + MEASURED
STEPS = WINDOW + 1 + MEASURED  # the first step after the window still has the end of it
CONTROL = "control (nothing recorded)"
MODES = {
    CONTROL: None,
    "hooks and tags": ["--no-allocator", "--no-kineto"],
    "+ allocator events": ["--no-kineto"],
    "+ Kineto traces (default)": [],
}


def ratios(flags: list[str] | None) -> tuple[tuple[float, float], float]:
    """Recorded over bare, of forward + backward and of the whole step; and the bare whole step in ns."""
    with tempfile.TemporaryDirectory() as folder:
        if flags is None:
            command = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        else:
            command = ["fsdp_profile", "run", "-n", "2", "--steps", f"0:{WINDOW}", "-o", f"{folder}/run", *flags]
        done = subprocess.run(
            [sys.executable, "-m", *command, str(SCRIPT), "--steps", str(STEPS)],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
    rows = json.loads(done.stdout.splitlines()[-1])
    recorded, bare = rows[WARM_UP:WINDOW], rows[WINDOW + 1 :]
    (inside, whole), (bare_inside, bare_whole) = (
        [statistics.median(row[part] for row in half) for part in (0, 1)] for half in (recorded, bare)
    )
    return (inside / bare_inside, whole / bare_whole), bare_whole


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    bare_ns = []
    for _ in range(rounds):
        for mode, flags in MODES.items():
            both, bare = ratios(flags)
            found[mode].append(both)
            bare_ns.append(bare)
    print(f"bare: {statistics.median(bare_ns) / 1e6:.1f} ms of CPU a step (one of 2 gloo ranks, median)")
    print(f"medians of {rounds} rounds of {MEASURED} + {MEASURED} steps (lowest to highest)")
    print(f"{'recorded':28}{'forward + backward':>26}{'whole step':>26}")
    for mode, values in found.items():
        print(f"{mode:28}{_cell([v[0] for v in values]):>26}{_cell([v[1] for v in values]):>26}")


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.3f}x ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
