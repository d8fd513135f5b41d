"""The table of all runs."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.tables import size_cells
from fsdp_dashboard.views.runs.queries import ListedRun

SAVED = "saved (%)"
UNKNOWN = "unknown (%)"
_PERCENT = 100
_DATE_CHARS = len("2026-01-02T03:04")


def runs_table(runs: Sequence[ListedRun], shown: Collection[str]) -> pa.Table:
    """One row per run; `shown` are the labels of those that the pages show now."""
    manifests = [run.row.manifest for run in runs]
    scale = byte_scale(max((run.row.peak_bytes or 0 for run in runs), default=0))
    return pa.table(
        {
            "run": [run.ref.label for run in runs],
            "strategy": [run.strategy or None for run in runs],
            f"peak ({scale.name})": size_cells([run.row.peak_bytes for run in runs], scale),
            SAVED: pa.array(
                [None if run.saved is None else round(run.saved.reduction_ratio * _PERCENT, 1) for run in runs],
                pa.float64(),
            ),
            UNKNOWN: pa.array([_unknown(run) for run in runs], pa.float64()),
            "ranks": pa.array([m.world_size if m else None for m in manifests], pa.int64()),
            "state": [state_of(run) for run in runs],
            "tags": pa.array([list(run.tags) for run in runs], pa.list_(pa.string())),
            "started": [m.created[:_DATE_CHARS].replace("T", " ") if m else None for m in manifests],
            "device": [(m.device_name or m.device_type or None) if m else None for m in manifests],
            "torch": [m.versions.get("torch") if m else None for m in manifests],
            "compared with": [run.baseline or None for run in runs],
            "on the pages": ["shown" if run.ref.label in shown else "" for run in runs],
        }
    )


def state_of(run: ListedRun) -> str:
    """Whether it is complete, and whether it was read at all."""
    row = run.row
    if row.problem:
        return f"cannot be read: {row.problem}"
    if not row.is_read:
        return "not read yet"
    if row.peak_bytes is None:
        return "complete, no memory" if row.manifest is not None and row.manifest.complete else "no memory"
    return "complete" if row.manifest is not None and row.manifest.complete else "not complete"


def _unknown(run: ListedRun) -> float | None:
    row = run.row
    if row.peak_bytes is None or row.unknown_bytes is None:
        return None
    return round(row.unknown_bytes / row.peak_bytes * _PERCENT, 2) if row.peak_bytes else 0.0
