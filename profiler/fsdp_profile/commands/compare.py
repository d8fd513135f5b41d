"""Compare the peaks of two or more runs: what sharding saves, by category, and why.

Each run stands for its worst rank. The baseline is the run that replicates
most (DDP first) unless one is named; a folder stands for every run in it.
With `--json` the comparison is one JSON document: bytes and ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.errors import InputError

if TYPE_CHECKING:
    from fsdp_profile.analysis.compare import ComparedRun, Comparison
    from fsdp_profile.analysis.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile compare`."""
    parser.add_argument("run_paths", metavar="RUN", nargs="+", type=Path, help="runs, bundles, or folders of them")
    parser.add_argument("--baseline", metavar="RUN", type=Path, help="the run the others are measured against")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")


def run(args: argparse.Namespace) -> int:
    """Compare; the exit code says nothing about the result."""
    from fsdp_profile.analysis.compare import compare

    runs, baseline = _open(args.run_paths, args.baseline)
    with damage(runs[0].path.parent):
        found = compare(runs, baseline=baseline)
    if args.json:
        import json

        print(json.dumps(_document(found), indent=2, allow_nan=False))
        return 0
    from fsdp_profile.report.compare import comparison_report
    from fsdp_profile.report.terminal import console

    console().print(comparison_report(found))
    return 0


def _open(paths: Sequence[Path], baseline: Path | None) -> tuple[list[Run], Run | None]:
    """The runs, each once and under a name of its own, and the one named as baseline."""
    from fsdp_profile.analysis.run import load_run
    from fsdp_profile.layout import find_runs

    chosen = None if baseline is None else open_run(baseline).path
    found = [path for given in paths for path in sorted(find_runs(given))]
    by_place = {path.resolve(): path for path in ([] if chosen is None else [chosen]) + found}
    if len(by_place) == 1 < len(found):
        raise InputError(f"{paths[0]}: the same run is given twice; compare it with another")
    runs = _labelled([load_run(path) for path in by_place.values()])
    return runs, None if chosen is None else runs[0]


def _labelled(runs: list[Run]) -> list[Run]:
    """Runs of the same name are called by the end of their paths that tells them apart."""
    import dataclasses

    import msgspec

    names = [run.name for run in runs]
    labels = [_path_label(run, runs) if names.count(run.name) > 1 else run.name for run in runs]
    return [
        dataclasses.replace(run, manifest=msgspec.structs.replace(run.manifest, name=label))
        for run, label in zip(runs, labels, strict=True)
    ]


def _path_label(run: Run, runs: Sequence[Run]) -> str:
    parts = run.path.resolve().parts
    others = [other.path.resolve().parts for other in runs if other is not run]
    depth = next((n for n in range(1, len(parts)) if all(o[-n:] != parts[-n:] for o in others)), len(parts))
    return "/".join(parts[-depth:])


def _document(found: Comparison) -> dict[str, Any]:
    """The document of `compare --json`. Keys are stable."""
    import dataclasses

    from fsdp_profile.schema import SCHEMA_VERSION

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
