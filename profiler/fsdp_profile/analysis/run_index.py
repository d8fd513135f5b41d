"""Runs as rows of a table: the manifest and the cached summaries of each, so that a thousand are read quickly.

A run whose summaries are not computed yet has no peak in its row; `is_read` distinguishes it from a run without one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsdp_profile.analysis.cache import read_cached
from fsdp_profile.analysis.ranks.overview import SUMMARY, RankSummary, rank_summaries, worst_peak
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.schema import Strategy
from fsdp_profile.ingest.manifest import read_manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run."""

    path: Path
    problem: str = ""
    """Why it cannot be read; '' where it can."""
    manifest: Manifest | None = None
    """None where it was not read yet (a bundle), or cannot be."""
    is_read: bool = False
    """Its ranks were summarized; what is None then was not recorded."""
    peak_bytes: int | None = None
    """The highest of its ranks'."""
    unknown_bytes: int | None = None
    """Not attributed, of that peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A run's peak against the DDP run it can be held against."""

    baseline: Path
    reduction_ratio: float
    """Of the baseline's peak; negative where the run needs more."""


def glance(path: Path) -> RunRow:
    """The facts that are known without reading a table."""
    if layout.is_bundle(path):
        return RunRow(path=path)
    try:
        manifest = read_manifest(path)
    except FsdpProfileError as e:
        return RunRow(path=path, problem=str(e))
    if layout.UNFINISHED in manifest.extra:
        return RunRow(path=path, manifest=manifest)
    found = [read_cached(path, SUMMARY, RankSummary, rank=rank) for rank in layout.ranks_in(path)]
    known = [summary for summary in found if summary is not None]
    return _row(path, manifest, known) if len(known) == len(found) else RunRow(path=path, manifest=manifest)


def read(path: Path) -> RunRow:
    """The same after reading what is needed; the result is cached."""
    try:
        run = load_run(path)
        return _row(path, run.manifest, rank_summaries(run))
    except FsdpProfileError as e:
        return replace(glance(path), problem=str(e))


def saved_against_ddp(rows: Sequence[RunRow]) -> dict[Path, Saved]:
    """Run -> what it saves against the newest complete DDP run that differs in nothing else.

    The same: model, parameters and dtypes, ranks, device, torch, arguments of the script.
    """
    by_kind: dict[Any, RunRow] = {}
    for row in rows:
        if row.manifest is None or row.manifest.strategy is not Strategy.DDP:
            continue
        if not row.manifest.complete or not row.peak_bytes or row.manifest.extra.get("as") == "zero1":
            continue
        kind = _kind(row.manifest)
        if kind not in by_kind or row.manifest.created > _created(by_kind[kind]):
            by_kind[kind] = row
    found = {}
    for row in rows:
        base = by_kind.get(_kind(row.manifest)) if row.manifest is not None else None
        if base is None or base is row or row.peak_bytes is None or not base.peak_bytes:
            continue
        ratio = (base.peak_bytes - row.peak_bytes) / base.peak_bytes
        found[row.path] = Saved(baseline=base.path, reduction_ratio=ratio)
    return found


def _row(path: Path, manifest: Manifest, ranks: Iterable[RankSummary]) -> RunRow:
    worst = worst_peak(ranks)
    if worst is None:
        return RunRow(path=path, manifest=manifest, is_read=True)
    return RunRow(
        path=path,
        manifest=manifest,
        is_read=True,
        peak_bytes=worst.allocated_bytes,
        unknown_bytes=worst.by_category.get(Category.UNKNOWN, 0),
    )


def _kind(manifest: Manifest) -> Any:
    model = manifest.model
    return (
        (model.name, model.numel, tuple(sorted(model.dtypes))),
        (manifest.world_size, manifest.device_name or manifest.device_type, manifest.versions.get("torch")),
        tuple(manifest.script_args),
    )


def _created(row: RunRow) -> str:
    return row.manifest.created if row.manifest is not None else ""
