"""Where things lie in a run directory, and how a new one is made.

A run directory is never overwritten: a new run claims an absent or empty folder.
"""

import os
import time
from pathlib import Path
from typing import Final

from fsdp_profile.core.capture_log import FILE_NAME
from fsdp_profile.core.errors import InputError, OutputError

MANIFEST: Final = "manifest.json"
RAW: Final = "raw"
TAGS: Final = "tags.json"
"""Tags that a user gave a run; a file of its own, beside the recording."""
DEFAULT_RUNS: Final = "runs"
BUNDLE_SUFFIX: Final = ".fsdpz"
RESTART: Final = "restart_"
JOB: Final = "job_"
JOB_KEY: Final = ".job"
"""File that says which of a script's jobs a folder is of."""
ENV_RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"

UNFINISHED: Final = "unfinished"
"""Key of the manifest's `extra`, with the key of a job: another launcher ran it, so the first reader completes it."""

# Environment through which the launcher reaches the capture in the ranks.
ENV_RUN_DIR: Final = "FSDP_PROFILE_RUN_DIR"
ENV_AGENT_PID: Final = "FSDP_PROFILE_AGENT_PID"
ENV_OPTIONS: Final = "FSDP_PROFILE_OPTIONS"
ENV_TREE: Final = "FSDP_PROFILE_TREE"
"""Set where the ranks are not the launcher's own children: each process below it that joins a process group is one."""


def rank_dir(run_dir: Path, rank: int) -> Path:
    """The folder of one rank."""
    return run_dir / f"rank_{rank:05d}"


def raw_dir(run_dir: Path, rank: int) -> Path:
    """What capture wrote for one rank."""
    return rank_dir(run_dir, rank) / RAW


def capture_log(run_dir: Path, rank: int) -> Path:
    """The append-only log of one rank's capture."""
    return raw_dir(run_dir, rank) / FILE_NAME


def table_path(run_dir: Path, rank: int, table: str) -> Path:
    """The Parquet file of one table of one rank."""
    return rank_dir(run_dir, rank) / f"{table}.parquet"


def ranks_in(run_dir: Path) -> list[int]:
    """The ranks that left a folder, in order."""
    found = (p.name.removeprefix("rank_") for p in run_dir.glob("rank_*") if p.is_dir())
    return sorted(int(text) for text in found if text.isdecimal())


def attempt_dir(run_dir: Path, restarts: int) -> Path:
    """Where the ranks record after so many elastic restarts: every attempt is a run of its own."""
    name = f"{RESTART}{restarts}"
    return run_dir if restarts == 0 or run_dir.name == name else run_dir / name


def attempts_in(run_dir: Path) -> list[Path]:
    """The run directories of the restarts, in order."""
    return _numbered(run_dir, RESTART)


def job_dir(run_dir: Path, number: int) -> Path:
    """Where the ranks of a script's job record: its first in the run's folder, every further one in its own."""
    return run_dir if number == 0 else run_dir / f"{JOB}{number}"


def jobs_in(run_dir: Path) -> list[Path]:
    """The run directories of a script's further jobs, in order."""
    return _numbered(run_dir, JOB)


def _numbered(run_dir: Path, prefix: str) -> list[Path]:
    found = [p for p in run_dir.glob(f"{prefix}*") if p.is_dir() and p.name.removeprefix(prefix).isdecimal()]
    return sorted(found, key=lambda p: int(p.name.removeprefix(prefix)))


def is_run(path: Path) -> bool:
    """Whether the folder holds a run."""
    return (path / MANIFEST).is_file()


def is_bundle(path: Path) -> bool:
    """Whether this is a file that says of itself to hold a run."""
    return path.suffix == BUNDLE_SUFFIX and path.is_file()


def stamp_of(path: Path) -> tuple[int, int]:
    """Time and size of the file that changes with a run: its manifest, or the bundle."""
    status = (path if is_bundle(path) else path / MANIFEST).stat()
    return status.st_mtime_ns, status.st_size


def find_runs(path: Path) -> list[Path]:
    """The run or bundle at `path`, or the runs (two levels) and bundles (one) in the folder, newest first.

    Raises:
        InputError: nothing there, or no run in it.
    """
    try:
        is_there = path.exists()
    except OSError as e:
        raise InputError(f"{str(path)[:80]}...: cannot be looked up ({e.strerror})") from e
    if not is_there:
        raise InputError(f"{path}: no such file or folder")
    if is_run(path) or is_bundle(path):
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: neither a run directory nor a bundle (*{BUNDLE_SUFFIX})")
    found = {p.parent for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}") for p in path.glob(pattern)}
    found |= {p for p in path.glob(f"*{BUNDLE_SUFFIX}") if p.is_file()}
    if not found:
        raise InputError(f"{path}: no recorded run in it; record one with: fsdp-profile run train.py")
    return sorted(found, key=lambda p: (-stamp_of(p)[0], p.name))


def claim_run_dir(path: Path) -> Path:
    """Create `path` as a new run directory and return it.

    Raises:
        OutputError: it holds something already, or cannot be written.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            raise OutputError(f"{path}: exists and is not empty; choose another folder with -o, or remove it")
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".write_test"
        probe.write_bytes(b"0" * 4096)
        probe.unlink()
    except OutputError:
        raise
    except OSError as e:
        raise OutputError(f"{path}: cannot write here ({e.strerror or e}); choose another folder with -o") from e
    return path


def new_run_name(script: str, world_size: int | None, *, now: float | None = None) -> str:
    """Name of a new run: script, world size where it is known, time.

    >>> new_run_name("a/train.py", 4, now=0.0), new_run_name("torchrun", None, now=0.0)
    ('train-4ranks-19700101-000000', 'torchrun-19700101-000000')
    """
    moment = time.gmtime(now) if now is not None else time.localtime()
    ranks = f"-{world_size}ranks" if world_size is not None else ""
    return f"{script_stem(script)}{ranks}-{time.strftime('%Y%m%d-%H%M%S', moment)}"


def script_stem(script: str) -> str:
    """A script's name, or a module's, as part of a folder's name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in Path(script).stem) or "run"


def default_run_dir(script: str, world_size: int | None) -> Path:
    """An unused folder under runs/ for a new run; two runs in one second get different ones."""
    base = Path(DEFAULT_RUNS) / new_run_name(script, world_size)
    candidate, number = base, 2
    while candidate.exists():
        candidate = base.with_name(f"{base.name}-{number}")
        number += 1
    return candidate


def packaged(folder: str) -> Path:
    """A folder shipped with the project (`examples`, `sample_runs`): in the wheel, or in the checkout.

    Raises:
        InputError: this installation came without it.
    """
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / f"_{folder}", here.parents[1] / folder):
        if candidate.is_dir():
            return candidate
    raise InputError(f"{folder}/ is not part of this installation; take it from the project's repository")


def injection_dir() -> Path:
    """The folder that `run` puts first on PYTHONPATH of the ranks; it holds a sitecustomize.py."""
    return Path(__file__).resolve().parents[1] / "capture" / "process" / "inject"


def injected_path(python_path: str | None) -> str:
    """PYTHONPATH with the injection in front."""
    return os.pathsep.join([str(injection_dir()), *([python_path] if python_path else [])])
