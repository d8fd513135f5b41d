"""The one doorway from the pages to a run. Every answer is cached by path, time and size of the manifest.

A run that cannot be read raises one of fsdp_profile.core.errors, whatever is wrong with its files.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from fsdp_dashboard.launch import ENV_RUNS
from fsdp_profile.analysis import summary
from fsdp_profile.analysis.cache import cached_of_run
from fsdp_profile.analysis.compare.peaks import Comparison, compare
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory import step_ledger as steps
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.memory.step_ledger import StepLedger
from fsdp_profile.analysis.ranks import overview as ranks
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.analysis.spans import recorded
from fsdp_profile.analysis.units import summaries as units
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core import layout
from fsdp_profile.core.errors import FsdpProfileError, InputError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.schema import Strategy
from fsdp_profile.ingest.finalize import convert_run, is_unconverted
from fsdp_profile.ingest.manifest import read_manifest

MAX_COMPARED: Final = 4
"""Runs shown beside each other when nobody chose."""
MAX_BLOCKS: Final = 25
"""Blocks listed at a peak."""
_MAX_MANIFESTS: Final = 50  # of a folder's newest runs, looked at to choose what to show first
_CATALOGUE: Final = "catalogue"
_DAMAGE: Final = (ValueError, LookupError, TypeError, ArithmeticError, OSError, pa.ArrowException)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRef:
    """A run that can be chosen."""

    label: str
    """What the picker and the URL call it: its path below the folder that was given."""
    path: Path
    stamp: tuple[int, int]
    """Time and size of the manifest, or of the bundle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """What there is to choose from."""

    runs: dict[str, RunRef]
    default: tuple[str, ...]
    """Labels of what to show when nobody chose."""
    problems: tuple[str, ...]
    """One line per place without a run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The manifest of a run and a summary of each rank."""

    label: str
    manifest: Manifest
    ranks: list[RankSummary]

    @property
    def worst(self) -> RankSummary | None:
        """The rank with the highest peak (the lowest such rank); None without allocator events."""
        peak = ranks.worst_peak(self.ranks)
        return next((r for r in self.ranks if peak is not None and r.peak is peak), None)


def catalogue() -> Catalogue:
    """The runs as this drawing of the page found them: a thousand folders are looked at once, not at every question."""
    where, found = st.session_state.get(_CATALOGUE, (None, None))
    return found if where == _roots() and isinstance(found, Catalogue) else look_again()


def look_again() -> Catalogue:
    """The runs below FSDP_PROFILE_RUNS; without it ./runs, then the sample runs of the project."""
    found = _look()
    st.session_state[_CATALOGUE] = (_roots(), found)
    return found


def _look() -> Catalogue:
    runs: dict[str, RunRef] = {}
    given: list[str] = []
    problems = []
    for root, is_required in _roots():
        try:
            found = layout.find_runs(root)
        except FsdpProfileError as e:
            problems += [str(e)] if is_required else []
            continue
        for path in found:
            ref = _ref(path, root, runs)
            runs.setdefault(ref.label, ref)
            given += [ref.label] if path == root else []
    default = tuple(given[:MAX_COMPARED]) or _first_choice(list(runs.values()))
    return Catalogue(runs=runs, default=default, problems=tuple(problems))


def facts(ref: RunRef) -> RunFacts:
    """The manifest and the summary of every rank."""
    manifest: Manifest = ask(_manifest, ref)
    found: list[RankSummary] = ask(ranks.rank_summaries, ref)
    return RunFacts(label=ref.label, manifest=manifest, ranks=found)


def not_recorded(ref: RunRef) -> dict[str, str]:
    """Field of `show --json` -> why it is null."""
    found: dict[str, str] = ask(_not_recorded, ref)
    return found


def comparison(refs: Sequence[RunRef]) -> Comparison:
    """The peaks of two or more runs against the one that replicates most."""
    with Damage(", ".join(ref.label for ref in refs)):
        return _compared(tuple((str(ref.path), ref.stamp, ref.label) for ref in refs))


def sharded_first(refs: Sequence[RunRef]) -> list[RunRef]:
    """The same runs, those that shard before those that replicate or cannot be read."""

    def replicates(ref: RunRef) -> bool:
        try:
            manifest: Manifest = ask(_manifest, ref)
        except FsdpProfileError:
            return True
        return manifest.strategy in (Strategy.DDP, Strategy.NONE)

    return sorted(refs, key=replicates)


def rank_shown(run: RunFacts, rank: int | None) -> int:
    """The rank asked for, or the one with the highest peak.

    Raises:
        InputError: no allocator events in this run, or no such rank.
    """
    if run.worst is None:
        raise InputError("no allocator events of a training step in it; record it again with memory")
    if rank is None:
        return run.worst.rank
    if rank not in {r.rank for r in run.ranks}:
        raise InputError(f"it has no rank {rank}; choose another rank")
    return rank


def recorded_steps(ref: RunRef, *, rank: int) -> list[int]:
    """Training steps with allocator events."""
    found: list[int] = ask(steps.recorded_steps, ref, rank=rank)
    return found


def step_ledger(ref: RunRef, *, rank: int, step: int) -> StepLedger:
    """Memory over one step, with its phases and its active units."""
    found: StepLedger = ask(steps.step_ledger, ref, rank=rank, step=step)
    return found


def peak(ref: RunRef, *, rank: int, step: int | None = None) -> Peak:
    """The peak over the training steps, or over one.

    Raises:
        InputError: no allocator events there.
    """
    found: Peak | None = ask(ledger.peak, ref, rank=rank, step=step)
    if found is None:
        where = "the training steps" if step is None else f"step {step}"
        raise InputError(f"rank {rank} has no allocator events in {where}; choose another rank or step")
    return found


def biggest_blocks(ref: RunRef, *, rank: int, event: int) -> pa.Table:
    """The largest blocks live after an event: rows of `allocations`."""
    return ask(_biggest_blocks, ref, rank=rank, event=event)


def unit_names(ref: RunRef, *, rank: int) -> dict[int, str]:
    """Unit number -> its name."""
    found: dict[int, str] = ask(recorded.unit_names, ref, rank=rank)
    return found


def unit_summaries(ref: RunRef, *, rank: int) -> list[UnitSummary]:
    """Every unit over the complete steps."""
    found: list[UnitSummary] = ask(units.unit_summaries, ref, rank=rank)
    return found


def spans_between(ref: RunRef, *, rank: int, start_ns: int, end_ns: int) -> pa.Table:
    """What the units did in a time window."""
    return ask(recorded.spans_between, ref, rank=rank, start_ns=start_ns, end_ns=end_ns)


def step_durations_ns(ref: RunRef, *, rank: int) -> list[int]:
    """Length of each complete step."""
    found: list[int] = [int(ns) for ns in ask(ranks.step_durations_ns, ref, rank=rank)]
    return found


def longest(runs: Sequence[tuple[RunRef, RunFacts]]) -> tuple[int, int]:
    """The highest peak and the longest step of all ranks of some runs: what their figures share as scale."""
    sizes, durations = [0], [0]
    for ref, run in runs:
        sizes += [r.peak.allocated_bytes for r in run.ranks if r.peak]
        for rank in run.ranks:
            with contextlib.suppress(FsdpProfileError):  # told where the run itself is drawn
                durations += step_durations_ns(ref, rank=rank.rank)
    return max(sizes), max(durations)


def _not_recorded(run: Run) -> dict[str, str]:
    return cached_of_run(run, "not_recorded", dict[str, str], compute=lambda: summary.not_recorded(run))


def _manifest(run: Run) -> Manifest:
    return run.manifest


def _biggest_blocks(run: Run, *, rank: int, event: int) -> pa.Table:
    return ledger.blocks_at(run, rank=rank, event=event).slice(0, MAX_BLOCKS)


def ask(question: Callable[..., Any], ref: RunRef, **arguments: int | None) -> Any:
    """The cached answer of an analysis to a question about one run.

    Raises:
        InputError: the run's files do not give it.
    """
    name = f"{question.__module__}.{question.__qualname__}"
    with Damage(ref.label):
        _convert(str(ref.path), ref.stamp)
        return _answer(name, str(ref.path), ref.stamp, tuple(sorted(arguments.items())), _question=question)


@st.cache_data(ttl=60, max_entries=1024, show_spinner="Converting the recording into tables, once")
def _convert(path: str, _stamp: tuple[int, int]) -> None:
    """Write the tables of a recording that nobody converted yet."""
    run_dir = Path(path)
    if layout.is_run(run_dir):
        manifest = read_manifest(run_dir)
        if is_unconverted(run_dir, manifest):
            convert_run(run_dir, manifest)


@st.cache_data(max_entries=256, show_spinner="Reading the run")
def _answer(
    name: str, path: str, stamp: tuple[int, int], arguments: tuple[Any, ...], _question: Callable[..., Any]
) -> Any:
    return _question(load_run(path), **dict(arguments))


@st.cache_data(max_entries=32, show_spinner="Comparing the runs")
def _compared(keys: tuple[tuple[str, tuple[int, int], str], ...]) -> Comparison:
    return compare([load_run(path).called(label) for path, _, label in keys])


class Damage:
    """Files that contradict each other raise anything; the page gets one kind of error."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, _DAMAGE) and not isinstance(error, FsdpProfileError):
            problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            raise InputError(
                f"{self.label}: its files contradict each other ({problem}); record the run again"
            ) from error


def _roots() -> list[tuple[Path, bool]]:
    """Where to look, and whether finding nothing there is worth a word."""
    given = [part for part in os.environ.get(ENV_RUNS, "").split(os.pathsep) if part]
    if given:
        return [(Path(part), True) for part in given]
    roots = [(Path(layout.DEFAULT_RUNS).absolute(), False)]
    with contextlib.suppress(InputError):  # an installation without the samples shows ./runs alone
        roots.append((layout.packaged("sample_runs"), False))
    return roots


def _ref(path: Path, root: Path, taken: dict[str, RunRef]) -> RunRef:
    name = path.name if path == root else path.relative_to(root).as_posix()
    label, number = name, 2
    while label in taken and taken[label].path != path:
        label, number = f"{name} ({number})", number + 1
    return RunRef(label=label, path=path, stamp=layout.stamp_of(path))


def _first_choice(refs: list[RunRef]) -> tuple[str, ...]:
    """The newest readable run, and the newest of each other strategy with the same model and world size."""
    chosen: dict[Strategy, str] = {}
    like = None
    for ref in refs[:_MAX_MANIFESTS]:
        try:
            manifest: Manifest = ask(_manifest, ref)
        except FsdpProfileError:
            continue
        like = like or manifest
        same = (manifest.model, manifest.world_size) == (like.model, like.world_size)
        if same and manifest.strategy not in chosen and len(chosen) < MAX_COMPARED:
            chosen[manifest.strategy] = ref.label
    if not chosen:
        return tuple(ref.label for ref in refs[:1])
    return tuple(chosen[strategy] for strategy in Strategy if strategy in chosen)
