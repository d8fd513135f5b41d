"""Values of an analysis to tables that people read and sort.

Sizes are numbers in one unit per table, named in the header, so that a click on it sorts. What was not
recorded is an empty cell, which the page shows as "not recorded".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsdp_dashboard.charts.labels import MINUS, ByteScale, byte_scale
from fsdp_dashboard.data import RunFacts
from fsdp_dashboard.text import receipt_facts
from fsdp_profile.analysis.compare.peaks import Comparison
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import NO_UNIT, NOT_FREED, SETUP_STEP, TEARDOWN_STEP

_DECIMALS = 3


def composition_table(peak: Peak) -> pa.Table:
    """The peak by category, largest first."""
    return pa.table(
        {
            "category": [str(category) for category in peak.by_category],
            "at the peak": [bytes_text(size) for size in peak.by_category.values()],
            "share": [ratio_text(size / peak.allocated_bytes) for size in peak.by_category.values()],
        }
    )


def comparison_table(found: Comparison, names: Sequence[str]) -> pa.Table:
    """Bytes by category at each run's peak, and each run's change against the baseline; the total last."""
    # UNKNOWN is always told, also where it is nothing.
    shown = [c for c in STACK_ORDER if c is Category.UNKNOWN or any(c in r.delta_by_category for r in found.runs)]
    rows: dict[str, list[Any]] = {"category": [*map(str, shown), "total"]}
    for name, run in zip(names, found.runs, strict=True):
        sizes = [run.peak.by_category.get(c, 0) for c in shown]
        rows[name] = [bytes_text(size) for size in [*sizes, run.peak.allocated_bytes]]
        if run.run != found.baseline:
            deltas = [*(run.delta_by_category.get(c, 0) for c in shown), -run.saved_bytes]
            rows[f"Δ {name}"] = [_signed(delta) for delta in deltas]
    return pa.table(rows)


def column_names(runs: Sequence[RunFacts]) -> list[str]:
    """The runs by their strategies, where those differ: a phone has no room for their names."""
    strategies = [str(run.manifest.strategy) for run in runs]
    return strategies if len(set(strategies)) == len(runs) else [run.label for run in runs]


def facts_table(runs: Sequence[RunFacts]) -> pa.Table:
    """What was run where, one column per run."""
    names = [name for name, _ in _facts(runs[0])]
    columns: dict[str, list[str]] = {"fact": names}
    for name, run in zip(column_names(runs), runs, strict=True):
        columns[name] = [value for _, value in _facts(run)]
    return pa.table(columns)


def blocks_table(blocks: pa.Table, names: dict[int, str]) -> pa.Table:
    """The blocks live at a moment, as given."""
    sizes = blocks.column("size_bytes").to_pylist()
    scale = byte_scale(max(sizes, default=0))
    starts, ends = blocks.column("start_ns").to_pylist(), blocks.column("end_ns").to_pylist()
    lives = [_life(start, end) for start, end in zip(starts, ends, strict=True)]
    return pa.table(
        {
            "category": blocks.column("category").to_pylist(),
            f"size ({scale.name})": size_cells(sizes, scale),
            "unit": [unit_name(unit, names) for unit in blocks.column("unit").to_pylist()],
            "tensor": blocks.column("name").to_pylist(),
            "allocated by": blocks.column("operator").to_pylist(),
            "in phase": blocks.column("phase").to_pylist(),
            "in step": [step_name(step) for step in blocks.column("step").to_pylist()],
            "lives": lives,
        }
    )


def _facts(run: RunFacts) -> list[tuple[str, str]]:
    manifest, model = run.manifest, run.manifest.model
    dtypes = ", ".join(model.dtypes)
    total = manifest.device_total_bytes
    device = manifest.device_name or manifest.device_type
    endings = sorted({r.ending.label for r in manifest.ranks})
    return [
        ("run", run.label),
        ("strategy", manifest.strategy_detail or str(manifest.strategy)),
        ("model", model.name or "not recorded"),
        ("parameters", f"{model.numel:,}, {bytes_text(model.param_bytes)} {dtypes}" if model.numel else "not recorded"),
        ("world size", str(manifest.world_size)),
        ("device", f"{device}, {bytes_text(total)}" if total is not None else device or "not recorded"),
        ("torch", manifest.versions.get("torch", "not recorded")),
        ("complete steps", _range([r.num_steps for r in run.ranks])),
        ("median step", _range_ms([r.median_step_ns for r in run.ranks])),
        ("ranks ended", ", ".join(endings) or "not recorded"),
        ("started", manifest.created),
        *receipt_facts(run),
    ]


def _life(start_ns: int, end_ns: int) -> str:
    return "to the end" if end_ns == NOT_FREED else ns_text(end_ns - start_ns)


def step_name(step: int) -> str:
    """A step's number, or what the time before and after the steps is called."""
    return {SETUP_STEP: "set-up", TEARDOWN_STEP: "after the last"}.get(step, str(step))


def _range(values: Sequence[int]) -> str:
    found = sorted(set(values))
    if not found:
        return "not recorded"
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _range_ms(values: Sequence[int | None]) -> str:
    found = sorted(ns for ns in values if ns is not None)
    if not found:
        return "not recorded: it needs two complete steps"
    low, high = f"{found[0] / 1e6:.2f}", f"{found[-1] / 1e6:.2f}"
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def unit_name(unit: int, names: Mapping[int, str]) -> str:
    """The unit's name for a cell; empty where it is none's."""
    return "" if unit == NO_UNIT else unit_text(names.get(unit, f"unit {unit}"))


def size_cells(sizes: Sequence[int | None], scale: ByteScale) -> Any:
    """A column of bytes in the unit of a scale; None is an empty cell."""
    found = [None if size is None else round(float(scale.of(size)), _DECIMALS) for size in sizes]
    return pa.array(found, pa.float64())


def ms_cells(durations_ns: Sequence[int | None]) -> Any:
    """A column of durations in ms; None is an empty cell."""
    return pa.array([None if ns is None else round(ns / 1e6, _DECIMALS) for ns in durations_ns], pa.float64())


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else MINUS if size_bytes < 0 else "") + bytes_text(abs(size_bytes))
