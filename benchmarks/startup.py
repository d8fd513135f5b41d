"""CPU seconds of `fsdp-profile --help` beside a bare interpreter: medians and their ratio."""

import resource
import statistics
import subprocess
import sys

_RUNS = 15


def cpu_seconds(*command: str) -> float:
    """User and system time of one finished child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure the two in turn."""
    bare, ours = [], []
    for _ in range(_RUNS):
        bare.append(cpu_seconds(sys.executable, "-c", "pass"))
        ours.append(cpu_seconds(sys.executable, "-m", "fsdp_profile", "--help"))
    ratio = statistics.median(b / a for a, b in zip(bare, ours, strict=True))
    print(f"python -c pass       {statistics.median(bare):.3f} s")
    print(f"fsdp-profile --help  {statistics.median(ours):.3f} s   ({ratio:.1f} times a bare interpreter)")


if __name__ == "__main__":
    main()
