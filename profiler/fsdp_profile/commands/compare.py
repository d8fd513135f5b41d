"""Compare the peaks of two or more runs: what sharding saves, by category, and why.

Each run stands for its worst rank. The baseline is the run that replicates
most (DDP first) unless one is named; a folder stands for every run in it
that has a peak, and those without one are named. With `--json` the comparison is one JSON document: bytes and ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_profile.commands._opening import MAX_NAMED, damage, open_run
from fsdp_profile.core.errors import FsdpProfileError, InputError

if TYPE_CHECKING:
    from fsdp_profile.analysis.compare.peaks import ComparedRun, Comparison
    from fsdp_profile.analysis.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile compare`."""
    parser.add_argument("run_paths", metavar="RUN", nargs="+", type=Path, help="runs, bundles, or folders of them")
    parser.add_argument("--baseline", metavar="RUN", type=Path, help="the run the others are measured against")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")


def run(args: argparse.Namespace) -> int:
    """Compare; the exit code says nothing about the result."""
    import sys

    from fsdp_profile.analysis.compare.peaks import compare

    opened = _open(args.run_paths, args.baseline)
    with damage(opened.runs[0].path.parent):
        found = compare(opened.runs, baseline=opened.baseline)
    if args.json:
        import json

        print(json.dumps(_document(found, opened.left_out), indent=2, allow_nan=False))
        return 0
    for line in opened.left_out:
        print(f"fsdp-profile: left out: {line}", file=sys.stderr)
    from fsdp_profile.render.terminal.compare import comparison_report
    from fsdp_profile.render.terminal.console import console

    console().print(comparison_report(found))
    return 0


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """What is compared."""

    runs: list[Run]
    """Each once, and under a name of its own."""
    baseline: Run | None
    left_out: list[str]
    """Of the runs found in folders, those that cannot be compared: a line each."""


def _open(paths: Sequence[Path], baseline: Path | None) -> _Opened:
    """The runs: one that is named must be fit to be compared, one that only lies in a folder may be left out."""
    from fsdp_profile.core.layout import find_runs

    chosen = None if baseline is None else open_run(baseline).path
    is_named: dict[Path, bool] = {} if chosen is None else {chosen: True}
    num_found = len(is_named)
    by_place = {path.resolve(): path for path in is_named}
    for given in paths:
        for path in sorted(find_runs(given)):
            num_found += 1
            path = by_place.setdefault(path.resolve(), path)
            is_named[path] = is_named.get(path, False) or path == given
    if len(is_named) == 1 < num_found:
        raise InputError(f"{paths[0]}: the same run is given twice; compare it with another")
    looked_at = [_fit(path, must=must or len(is_named) == 1) for path, must in is_named.items()]
    left_out = [why for why in looked_at if isinstance(why, str)]
    runs = _labelled([run for run in looked_at if not isinstance(run, str)])
    if len(runs) < 2 and left_out:
        raise InputError(f"compare needs at least two runs; left out: {'; '.join(left_out[:MAX_NAMED])}")
    return _Opened(runs=runs, baseline=None if chosen is None else runs[0], left_out=left_out)


def _fit(path: Path, *, must: bool) -> Run | str:
    """A run with a peak, or why it is none; its summaries are cached beside it, so this is computed once."""
    from fsdp_profile.analysis.compare.peaks import comparable_peak
    from fsdp_profile.commands._opening import read_run

    try:
        found = read_run(path)
        with damage(path):
            comparable_peak(found)
    except FsdpProfileError as e:
        if must:
            raise
        return str(e)
    return found


def _labelled(runs: list[Run]) -> list[Run]:
    """Label runs of the same name by the part of their paths in which they differ."""
    from collections import Counter

    num_named = Counter(run.name for run in runs)
    alike = {i: run.path.resolve().parts for i, run in enumerate(runs) if num_named[run.name] > 1}
    ends = Counter("/".join(parts[-n:]) for parts in alike.values() for n in range(1, len(parts) + 1))
    labels = {
        i: next(end for n in range(1, len(parts) + 1) if ends[end := "/".join(parts[-n:])] == 1)
        for i, parts in alike.items()
    }
    return [run.called(labels.get(i, run.name)) for i, run in enumerate(runs)]


def _document(found: Comparison, left_out: Sequence[str]) -> dict[str, Any]:
    """The document of `compare --json`. Keys are stable."""
    import dataclasses

    from fsdp_profile.core.schema import SCHEMA_VERSION

    return {
        "schema": SCHEMA_VERSION,
        "runs": [c.run.name for c in found.runs],
        "baseline": found.baseline.name,
        "peak": [
            {
                "run": c.run.name,
                "allocated_bytes": c.peak.allocated_bytes,
                "reduction_ratio": c.reduction_ratio,
                "by_category": {str(category): size for category, size in c.peak.by_category.items()},
                "change_by_category": {str(category): delta for category, delta in c.waterfall},
            }
            for c in found.runs
        ],
        "by_phase": [{"phase": row.name, "peak_bytes": list(row.sizes_bytes)} for row in found.phases],
        "by_unit": [{"unit": row.name, "held_bytes": list(row.sizes_bytes)} for row in found.units],
        "per_step": [{"run": c.run.name, **dataclasses.asdict(c.cost)} for c in found.runs],
        "losses": [_losses(c) for c in found.runs if c.losses is not None],
        "why": list(found.why),
        "differences": list(found.differences),
        "left_out": list(left_out),
    }


def _losses(c: ComparedRun) -> dict[str, Any]:
    """How the losses of a run agree with the baseline's; what is not finite is null."""
    import math

    found = c.losses
    assert found is not None
    return {
        "run": c.run.name,
        "is_equal": found.is_equal,
        "tolerance_ratio": found.tolerance_ratio,
        "num_losses": found.num_losses,
        "max_difference_by_step": {
            str(s.step): s.difference if math.isfinite(s.difference) else None for s in found.steps
        },
    }
