"""Scripts whose entry is a configuration tool's: it finds `__main__`, its folder and its arguments as without us."""

from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile, torchrun

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.schema import Strategy

pytestmark = pytest.mark.slow

SCRIPT = str(SCRIPTS / "configured.py")
CALLS = {
    "hydra": ("steps=3", "net.width=16", "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled"),
    "jsonargparse": ('{"class_path": "__main__.Net", "init_args": {"width": 16}}', "--width=16", "--steps=3"),
}


@pytest.mark.parametrize("tool", CALLS)
def test_a_configured_script_trains_and_prints_the_same(tmp_path: Path, tool: str) -> None:
    pytest.importorskip(tool)
    bare = torchrun("--nproc-per-node=2", SCRIPT, tool, *CALLS[tool])
    ours = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), SCRIPT, tool, *CALLS[tool])
    assert (ours.returncode, bare.returncode) == (0, 0), ours.stderr
    assert sorted(ours.stdout.splitlines()) == sorted(bare.stdout.splitlines())
    assert "__main__ 16 step 2 loss 780.224487" in ours.stdout
    run = load_run(tmp_path / "run")
    assert (run.ranks, run.manifest.strategy, run.manifest.warnings) == ((0, 1), Strategy.FSDP2, [])
    assert all(peak.unknown_ratio <= 0.01 for peak in ledger.peak_of_steps(run, rank=0))
