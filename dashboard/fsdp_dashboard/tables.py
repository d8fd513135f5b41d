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
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.categories import STACK_ORDER, Category
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import NO_UNIT, NOT_FREED, SETUP_STEP, TEARDOWN_STEP, Ending

_DECIMALS = 3
PREFETCHED = "yes, by whom is not recorded"


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


def units_table(units: Sequence[UnitSummary]) -> pa.Table:
    """One row per unit; bytes in one unit, times in ms over all complete steps."""
    scale = byte_scale(max((u.unsharded_bytes for u in units), default=0))
    return pa.table(
        {
            "unit": [unit_text(u.name) for u in units],
            "parameters": [u.numel for u in units],
            f"sharded ({scale.name})": size_cells([u.sharded_bytes for u in units], scale),
            f"unsharded ({scale.name})": size_cells([u.unsharded_bytes for u in units], scale),
            "over ranks": [u.shard_size for u in units],
            "gathers": [u.num_gathers for u in units],
            "reshards": [u.num_reshards for u in units],
            "gathered (ms)": ms_cells([u.gathered_ns for u in units]),
            "all-gather (ms)": ms_cells([u.all_gather_ns for u in units]),
            "reduction (ms)": ms_cells([u.reduce_scatter_ns for u in units]),
            "exposed (ms)": ms_cells([u.exposed_ns for u in units]),
        }
    )


def in_flight_table(found: Sequence[InFlight]) -> pa.Table:
    """The most that was gathered at once, one row per phase."""
    scale = byte_scale(max((f.gathered_bytes for f in found), default=0))
    return pa.table(
        {
            "phase": [f.phase for f in found],
            "units": [f.max_gathered for f in found],
            f"bytes ({scale.name})": size_cells([f.gathered_bytes for f in found], scale),
            "ahead": [f.max_ahead for f in found],
            f"bytes ahead ({scale.name})": size_cells([f.ahead_bytes for f in found], scale),
            f"held ({scale.name})": size_cells([f.held_bytes for f in found], scale),
            "units then": [", ".join(map(unit_text, f.units)) for f in found],
        }
    )


def gathers_table(gathers: pa.Table, *, start_ns: int) -> pa.Table:
    """The gathers of a step that begins at `start_ns`, by time."""
    issue, use, end, sizes = (
        gathers.column(name).to_pylist() for name in ("issue_ns", "use_ns", "end_ns", "size_bytes")
    )
    scale = byte_scale(max(sizes, default=0))
    told = zip(gathers.column("prefetched").to_pylist(), gathers.column("prefetch").to_pylist(), strict=True)
    return pa.table(
        {
            "unit": [unit_text(name) for name in gathers.column("name").to_pylist()],
            "phase": gathers.column("phase").to_pylist(),
            "prefetch": [(by or PREFETCHED) if is_ahead else "no" for is_ahead, by in told],
            "issued (ms)": ms_cells([at - start_ns for at in issue]),
            "ahead (ms)": ms_cells([None if at is None else at - begun for at, begun in zip(use, issue, strict=True)]),
            "resharded (ms)": ms_cells([at - start_ns for at in end]),
            "gathered (ms)": ms_cells([at - begun for at, begun in zip(end, issue, strict=True)]),
            f"bytes ({scale.name})": size_cells(sizes, scale),
        }
    )


def ranks_table(ranks: Sequence[RankSummary]) -> pa.Table:
    """One row per rank: its peaks, its steps and how it ended."""
    sizes = [(r.peak.allocated_bytes if r.peak else None) for r in ranks]
    scale = byte_scale(max((s for s in sizes if s is not None), default=0))
    records = [r.record for r in ranks]
    return pa.table(
        {
            "rank": [r.rank for r in ranks],
            f"peak ({scale.name})": size_cells(sizes, scale),
            f"set-up peak ({scale.name})": size_cells([r.setup_peak_bytes for r in ranks], scale),
            f"reserved peak ({scale.name})": size_cells([r.reserved_peak_bytes for r in ranks], scale),
            f"device used ({scale.name})": size_cells([r.device_used_peak_bytes for r in ranks], scale),
            f"host RSS ({scale.name})": size_cells([r.host_rss_peak_bytes for r in ranks], scale),
            "complete steps": [r.num_steps for r in ranks],
            "median step (ms)": ms_cells([r.median_step_ns for r in ranks]),
            "ending": [ending_text(r.ending) if r else None for r in records],
            "exit code": pa.array([r.exit_code if r else None for r in records], pa.int64()),
            "message": [r.message if r else None for r in records],
            "host": [r.host if r else None for r in records],
            "device": [r.device if r else None for r in records],
        }
    )


def ending_text(ending: Ending) -> str:
    """How a process ended; files that were recorded elsewhere do not tell.

    >>> ending_text(Ending.COMPLETED), ending_text(Ending.IMPORTED)
    ('COMPLETED', 'not told: imported')
    """
    return "not told: imported" if ending is Ending.IMPORTED else str(ending)


def _facts(run: RunFacts) -> list[tuple[str, str]]:
    manifest, model = run.manifest, run.manifest.model
    dtypes = ", ".join(model.dtypes)
    total = manifest.device_total_bytes
    device = manifest.device_name or manifest.device_type
    endings = sorted({ending_text(r.ending) for r in manifest.ranks})
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
