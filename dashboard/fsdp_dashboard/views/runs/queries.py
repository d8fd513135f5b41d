"""The doorway's part on all runs at once: manifests and summaries only, each read once while its file is unchanged."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsdp_dashboard.data import Catalogue, Damage, RunRef
from fsdp_profile.analysis import run_index
from fsdp_profile.analysis.run_index import RunRow, Saved
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.ingest import tags as tag_files

BUDGET_S: Final = 2.0
"""Of a page's time, for runs whose summaries nobody made yet; the others are read when asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run with what the table shows of it."""

    ref: RunRef
    row: RunRow
    saved: Saved | None
    baseline: str
    """Label of the run it is compared with; '' where there is none."""
    tags: tuple[str, ...]

    @property
    def strategy(self) -> str:
        """As the manifest names it; '' where it is not known."""
        return self.row.manifest.strategy.label if self.row.manifest is not None else ""

    @property
    def created(self) -> str:
        """ISO 8601; '' where it is not known."""
        return self.row.manifest.created if self.row.manifest is not None else ""


SORTS: Final[dict[str, Callable[[ListedRun], tuple[bool, float | str]]]] = {
    "highest peak": lambda run: (run.row.peak_bytes is None, -(run.row.peak_bytes or 0)),
    "lowest peak": lambda run: (run.row.peak_bytes is None, run.row.peak_bytes or 0),
    "most saved": lambda run: (run.saved is None, -(run.saved.reduction_ratio if run.saved else 0.0)),
    "most unknown": lambda run: (run.row.unknown_bytes is None, -(run.row.unknown_bytes or 0)),
    "most ranks": lambda run: (False, -(run.row.manifest.world_size if run.row.manifest else 0)),
    "name": lambda run: (False, run.ref.label),
}
NEWEST: Final = "newest"
"""The order of the catalogue."""


def listed(catalogue: Catalogue, *, budget_s: float = BUDGET_S) -> list[ListedRun]:
    """Every run found, newest first; what takes longer than the budget stays unread."""
    refs = list(catalogue.runs.values())
    until = time.monotonic() + budget_s
    rows = [_row(ref, until=until) for ref in refs]
    saved = run_index.saved_against_ddp(rows)
    labels = {ref.path: ref.label for ref in refs}
    return [
        ListedRun(
            ref=ref,
            row=row,
            saved=saved.get(row.path),
            baseline=labels[saved[row.path].baseline] if row.path in saved else "",
            tags=tags_of(ref),
        )
        for ref, row in zip(refs, rows, strict=True)
    ]


def chosen_of(
    runs: Iterable[ListedRun], *, words: str, strategies: Sequence[str], tags: Sequence[str], sort: str
) -> list[ListedRun]:
    """Those that hold all words, have one of the strategies and all of the tags, in an order."""
    wanted = words.casefold().split()
    found = [
        run
        for run in runs
        if all(word in _said(run) for word in wanted)
        and (not strategies or run.strategy in strategies)
        and set(tags) <= set(run.tags)
    ]
    return sorted(found, key=SORTS[sort]) if sort in SORTS else found


def tags_of(ref: RunRef) -> tuple[str, ...]:
    """The tags of a run; none where their file is damaged, which `tag_problem` tells."""
    try:
        return tag_files.read_tags(ref.path)
    except FsdpProfileError:
        return ()


def tag_problem(ref: RunRef) -> str | None:
    """Why the tags of a run cannot be read; None where they can."""
    try:
        tag_files.read_tags(ref.path)
    except FsdpProfileError as e:
        return str(e)
    return None


def set_tags(refs: Iterable[RunRef], text: str) -> list[str]:
    """Give runs the tags in a text, separated by commas; a line for each that took none."""
    told = (_set_tags(ref, tuple(text.split(","))) for ref in refs)
    return [problem for problem in dict.fromkeys(told) if problem]


def _set_tags(ref: RunRef, tags: tuple[str, ...]) -> str:
    try:
        tag_files.write_tags(ref.path, tags)
    except (FsdpProfileError, ValueError) as e:
        return str(e)
    return ""


def _row(ref: RunRef, *, until: float) -> RunRow:
    try:
        with Damage(ref.label):
            row = _glance(ref.path, ref.stamp)
            if not row.is_read and not row.problem and time.monotonic() < until:
                row = _read(ref.path, ref.stamp)
    except FsdpProfileError as e:
        return RunRow(path=ref.path, problem=str(e))
    return row


_done: Final[dict[tuple[Path, tuple[int, int]], RunRow]] = {}
_MOST_DONE: Final = 20_000


def _glance(path: Path, stamp: tuple[int, int]) -> RunRow:
    if (path, stamp) in _done:
        return _done[path, stamp]
    row = run_index.glance(path)
    if row.is_read or row.problem:
        _keep(path, stamp, row)
    return row


def _read(path: Path, stamp: tuple[int, int]) -> RunRow:
    row = run_index.read(path)
    _keep(path, stamp, row)
    return row


def _keep(path: Path, stamp: tuple[int, int], row: RunRow) -> None:
    if len(_done) >= _MOST_DONE:
        _done.clear()
    _done[path, stamp] = row


def _words_of(row: RunRow) -> str:
    manifest = row.manifest
    if manifest is None:
        return ""
    facts = (manifest.name, str(manifest.strategy), manifest.strategy_detail, manifest.model.name, manifest.script,
             manifest.device_name, manifest.device_type, manifest.versions.get("torch", ""))  # fmt: skip
    return " ".join(facts).casefold()


def _said(run: ListedRun) -> str:
    return f"{run.ref.label} {' '.join(run.tags)}".casefold() + " " + _words_of(run.row)
