"""Start the small scripts under any launcher, and check that what was recorded is whole."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from recording import SCRIPTS

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.schema import Ending, Strategy

TINY, SPAWNED = str(SCRIPTS / "tiny_fsdp2.py"), str(SCRIPTS / "spawned.py")


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def python(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=240
    )


def assert_whole(run: Run, *, ranks: int, steps: int, strategy: Strategy) -> None:
    """Every rank is there, in every step, and adds up."""
    assert run.ranks == tuple(range(ranks))
    assert (run.manifest.world_size, run.manifest.strategy, run.manifest.warnings) == (ranks, strategy, [])
    assert run.manifest.complete
    for rank in run.ranks:
        assert run.manifest.ranks[rank].ending is Ending.COMPLETED
        law = ledger.conservation(run, rank=rank)
        assert (law.category_errors, law.reported_errors) == (0, 0)
        peaks = ledger.peak_of_steps(run, rank=rank)
        assert [peak.step for peak in peaks] == list(range(steps))
        assert all(peak.unknown_ratio <= 0.01 for peak in peaks)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
