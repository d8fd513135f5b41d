"""Values of an analysis to tables that people read and sort.

Sizes are numbers in one unit per table, named in the header, so that a click on it sorts. What was not
recorded is an empty cell, which the page shows as "not recorded".
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fsdp_dashboard.charts.labels import ByteScale, byte_scale
from fsdp_dashboard.data import RunFacts
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.humanize import unit_text
from fsdp_profile.core.schema import Ending
from fsdp_profile.present.overview import receipt_facts, run_facts
from fsdp_profile.present.values import NOT_RECORDED, Fact, say

_DECIMALS = 3
PREFETCHED = "yes, by whom is not recorded"


def column_names(runs: Sequence[RunFacts]) -> list[str]:
    """The runs by their strategies, where those differ: a phone has no room for their names."""
    strategies = [run.manifest.strategy.label for run in runs]
    return strategies if len(set(strategies)) == len(runs) else [run.label for run in runs]


def facts_table(runs: Sequence[RunFacts]) -> pa.Table:
    """What ran where and what recording it cost, one column per run."""
    facts = [_facts(run) for run in runs]
    labels = list(dict.fromkeys(fact.label for mine in facts for fact in mine))
    columns: dict[str, list[str | None]] = {"fact": list(labels)}
    for name, mine in zip(column_names(runs), facts, strict=True):
        values = {fact.label: fact.value.text for fact in mine}
        columns[name] = [values.get(label) for label in labels]
    return pa.table(columns)


def _facts(run: RunFacts) -> list[Fact]:
    endings = ", ".join(sorted({ending_text(r.ending) for r in run.manifest.ranks})) or NOT_RECORDED
    return [
        Fact(label="run", value=say(run.label)),
        *run_facts(run.manifest, run.ranks),
        Fact(label="ranks ended", value=say(endings)),
        *receipt_facts(run.manifest),
    ]


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


def size_cells(sizes: Sequence[int | None], scale: ByteScale) -> Any:
    """A column of bytes in the unit of a scale; None is an empty cell."""
    found = [None if size is None else round(float(scale.of(size)), _DECIMALS) for size in sizes]
    return pa.array(found, pa.float64())


def ms_cells(durations_ns: Sequence[int | None]) -> Any:
    """A column of durations in ms; None is an empty cell."""
    return pa.array([None if ns is None else round(ns / 1e6, _DECIMALS) for ns in durations_ns], pa.float64())
