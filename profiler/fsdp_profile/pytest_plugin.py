"""A limit on memory as a pytest marker: the test fails when what it trained needs more.

`@pytest.mark.limit_vram("2GiB", strategy="FSDP2")` looks at the runs that the test recorded with the `record_run`
fixture; without one, at torch's own peak on the CUDA devices of the test's process. A test in which nothing was
measured fails: a limit that cannot see is not kept. pytest loads this in every session, so it imports nothing heavy.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.core.humanize import bytes_of, bytes_text

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run

MARKER: Final = "limit_vram"
_RUNS: Final = pytest.StashKey[list[Path]]()
_TAIL_CHARS: Final = 2_000

RecordRun = Callable[..., "Run"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(limit, *, strategy=None): fail when a run recorded by the test peaks above limit ('2GiB')",
    )


@pytest.fixture
def record_run(request: pytest.FixtureRequest, tmp_path: Path) -> RecordRun:
    """A function that records a script and returns the run: `record_run("train.py", "--steps", "3", nproc_per_node=2)`.

    The script is started like by `fsdp-profile run`; `options` are more words for it. A script that fails, fails the
    test.
    """
    recorded = request.node.stash.setdefault(_RUNS, [])

    def record(script: str | Path, *arguments: str, nproc_per_node: int = 2, options: tuple[str, ...] = ()) -> "Run":
        from fsdp_profile.analysis.run import load_run

        path = tmp_path / f"fsdp_profile_run_{len(recorded)}"
        words = ["run", "--nproc-per-node", str(nproc_per_node), "--no-kineto", "-o", str(path), *options, str(script)]
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_profile", *words, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"{script}: exit code {done.returncode}\n{done.stderr[-_TAIL_CHARS:]}", pytrace=False)
        recorded.append(path)
        return load_run(path)

    return record


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """After the test's own body: hold what it measured against its marks."""
    marks = list(item.iter_markers(MARKER))
    if marks:
        _forget_device_peaks()
    outcome: Any = yield
    if outcome.excinfo is None:
        for mark in marks:
            problem = _problem(mark, item.stash.get(_RUNS, []))
            if problem:
                outcome.force_exception(pytest.fail.Exception(problem, pytrace=False))
                return


def _problem(mark: pytest.Mark, paths: list[Path]) -> str:
    """What is wrong with a mark or with what was measured; '' when all holds."""
    try:
        limit, strategy = _arguments(mark)
        if paths:
            return _of_runs(paths, limit, strategy)
    except (FsdpProfileError, ValueError, TypeError) as e:
        return f"{MARKER}: {e}"
    if strategy is not None:
        return f"{MARKER}: no run was recorded, so its strategy cannot be {strategy}; record one with record_run"
    peaks = _device_peaks()
    if not peaks:
        return f"{MARKER}: nothing was measured; record a run with the record_run fixture, or train on a CUDA device"
    highest = max(peaks.values())
    if highest > limit:
        device = next(device for device, size in peaks.items() if size == highest)
        over = bytes_text(highest - limit)
        return f"{MARKER}: peak {bytes_text(highest)} on cuda:{device}, {over} over the limit of {bytes_text(limit)}"
    return ""


def _arguments(mark: pytest.Mark) -> tuple[int, str | None]:
    if len(mark.args) != 1 or not set(mark.kwargs) <= {"strategy"}:
        raise TypeError('write it as @pytest.mark.limit_vram("2GiB", strategy="FSDP2")')
    strategy = mark.kwargs.get("strategy")
    return bytes_of(str(mark.args[0])), None if strategy is None else str(strategy).upper()


def _of_runs(paths: list[Path], limit: int, strategy: str | None) -> str:
    from fsdp_profile.analysis.check.limits import Limits, check
    from fsdp_profile.analysis.run import load_run

    runs = [load_run(path) for path in paths]
    meant = [run for run in runs if strategy is None or run.manifest.strategy.value == strategy]
    if not meant:
        found = ", ".join(sorted({run.manifest.strategy.value for run in runs}))
        return f"{MARKER}: no run of strategy {strategy} was recorded, but of {found}"
    failed = [one for run in meant for one in check(run, limits=Limits(peak_bytes=limit)).failed]
    return "\n".join(f"{MARKER}: {one.message}" for one in failed)


def _cuda() -> Any:
    """torch.cuda where the process has it in use already; it is never imported here."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def _forget_device_peaks() -> None:
    cuda = _cuda()
    for device in range(cuda.device_count()) if cuda is not None else ():
        cuda.reset_peak_memory_stats(device)


def _device_peaks() -> dict[int, int]:
    """Device -> torch's peak of allocated bytes since the test began; empty where no device was used."""
    cuda = _cuda()
    peaks = {d: int(cuda.max_memory_allocated(d)) for d in range(cuda.device_count())} if cuda is not None else {}
    return {device: size for device, size in peaks.items() if size}
