"""A script is to itself what it is without us: `__main__`, paths, environment, pickles, workers, neighbours."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from recording import SCRIPTS

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.schema import Strategy

pytestmark = pytest.mark.slow  # every start imports torch in five processes

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
RUN = ("-m", "fsdp_profile", "run", "--no-kineto", "-o", "{run}")
SCRIPT = ("{job}/train.py", "--flag", "a b")
MODULE = ("-m", "package.train", "--flag", "a b")

STARTS = {
    "run -n 2": ((*TORCHRUN, *SCRIPT), (*RUN, "-n", "2", *SCRIPT)),
    "run -n 2 -m": ((*TORCHRUN, *MODULE), (*RUN, "-n", "2", *MODULE)),
    "torchrun -m fsdp_profile run": ((*TORCHRUN, *SCRIPT), (*TORCHRUN, *RUN, *SCRIPT)),
    "torchrun -m fsdp_profile run -m": ((*TORCHRUN, *MODULE), (*TORCHRUN, *RUN, *MODULE)),
    "run torchrun": ((*TORCHRUN, *SCRIPT), (*RUN, *TORCHRUN, *SCRIPT)),
    "run, mp.spawn in it": ((*SCRIPT, "--spawn"), (*RUN, *SCRIPT, "--spawn")),
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script among neighbours that have our modules' names, alone and in a package, and a data file."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    for place in (folder, folder / "package"):
        shutil.copy(SCRIPTS / "own_main.py", place / "train.py")
    for name in ("profiler", "dashboard", "schema", "capture"):
        (folder / f"{name}.py").write_text("WHO = 'the job'\n")
    (folder / "numbers.txt").write_text("1 2\n")
    return folder


@pytest.fixture(scope="module")
def say(job: Path):  # type: ignore[no-untyped-def]
    """What a script says of itself on rank 0, each start once. The level of Kineto's log we set ourselves."""

    @cache
    def started(command: tuple[str, ...], run: str = "") -> dict[str, object]:
        words = [word.format(job=job, run=run) for word in command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
        done = subprocess.run(
            [sys.executable, *words], cwd=job, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stderr.splitlines() if line and not line.startswith("fsdp-profile: ")] == []
        return dict(json.loads(done.stdout))

    return started


@pytest.mark.parametrize("start", STARTS)
def test_a_script_is_to_itself_what_it_is_without_us(tmp_path: Path, say, job: Path, start: str) -> None:  # type: ignore[no-untyped-def]
    bare, ours = STARTS[start]
    assert say(ours, str(tmp_path / "run")) == say(bare)
    run = load_run(tmp_path / "run")
    assert (run.ranks, run.manifest.strategy, run.manifest.warnings) == ((0, 1), Strategy.DDP, [])
    for rank in run.ranks:
        law = ledger.conservation(run, rank=rank)
        assert (law.category_errors, law.reported_errors) == (0, 0)
        assert [peak.step for peak in ledger.peak_of_steps(run, rank=rank)] == [0, 1, 2]
