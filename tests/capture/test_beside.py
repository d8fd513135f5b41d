"""What scripts do beside training, in ranks that we do not start: neither breaks the other, what is lost is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile, torchrun

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.schema import Strategy

pytestmark = pytest.mark.slow

SCRIPT = str(SCRIPTS / "beside.py")
MIXED = "recompute accumulate optimizers scheduler scaler dcp"
LOST = "allocator events not recorded: the script runs its own torch.profiler, from step 0 on"


def started(start: str, run: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The script under one of the launchers, recorded."""
    record = ("run", "--no-kineto", "-o", str(run))
    if start == "mp.spawn":
        return fsdp_profile(*record, SCRIPT, *words)
    if start == "run torchrun":
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        return fsdp_profile(*record, *launcher, SCRIPT, *words)
    told = {"FSDP_PROFILE": "1", "FSDP_PROFILE_OUTPUT": str(run), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT, *words]
    return subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, timeout=240)


CASES = [("mp.spawn", words) for words in (MIXED, "dcp", "in-backward", "compile", "profiler")]
CASES += [(start, words) for start in ("run torchrun", "FSDP_PROFILE=1") for words in (MIXED, "compile", "profiler")]


@pytest.mark.parametrize(("start", "words"), CASES)
def test_neither_breaks_the_other(tmp_path: Path, start: str, words: str) -> None:
    bare = torchrun("--nproc-per-node=2", SCRIPT, str(tmp_path / "bare"), *words.split())
    ours = started(start, tmp_path / "run", str(tmp_path / "ours"), *words.split())
    assert (ours.returncode, ours.stdout) == (0, bare.stdout), ours.stderr
    run = load_run(tmp_path / "run")
    is_seen = words != "profiler"
    assert run.manifest.warnings == ([] if is_seen else [f"rank {rank}: {LOST}" for rank in range(2)])
    assert run.manifest.strategy is Strategy.FSDP2
    assert [record.num_steps for record in run.manifest.ranks] == [4, 4]
    for rank in run.ranks:
        assert ledger.conservation(run, rank=rank).category_errors == 0
        peaks = ledger.peak_of_steps(run, rank=rank)
        assert [peak.step for peak in peaks] == (list(range(4)) if is_seen else [])
        assert all(peak.unknown_ratio <= 0.01 for peak in peaks)
