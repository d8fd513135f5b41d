"""Collectives, ranks across each other and HTA's answers to tables that people read and sort.

As in tables.py: numbers in the unit of the header, and an empty cell for what was not recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.tables import ms_cells, size_cells
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.collectives.timeline import CallTotal, RankWait
from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.core.humanize import unit_text

_DECIMALS = 3


def kinds_table(totals: Sequence[CallTotal]) -> pa.Table:
    """One row per kind."""
    return _totals_table({"kind": [str(total.key[0]) for total in totals]}, totals)


def groups_table(totals: Sequence[CallTotal]) -> pa.Table:
    """One row per process group: what torch calls it, its name, how many ranks it has."""
    return _totals_table({"group": [_group(*total.key) for total in totals]}, totals)


def call_units_table(totals: Sequence[CallTotal]) -> pa.Table:
    """One row per unit."""
    names = ["(no unit)" if total.key[0] is None else unit_text(total.key[0]) for total in totals]
    return _totals_table({"unit": names}, totals)


def call_ranks_table(totals: Sequence[CallTotal]) -> pa.Table:
    """One row per rank."""
    return _totals_table({"rank": [int(total.key[0]) for total in totals]}, totals)


def breakdown_table(found: Mapping[int, TimeBreakdown]) -> pa.Table:
    """One row per step: the parts of its span, and what is not one of them."""
    steps = list(found.values())
    return pa.table(
        {
            "step": list(found),
            "span (ms)": ms_cells([b.span_ns for b in steps]),
            "compute (ms)": ms_cells([b.compute_ns for b in steps]),
            "exposed (ms)": ms_cells([b.exposed_ns for b in steps]),
            "copies (ms)": ms_cells([b.memory_ns for b in steps]),
            "idle (ms)": ms_cells([b.idle_ns for b in steps]),
            "overlapped (ms)": ms_cells([b.overlapped_ns for b in steps]),
            "host-bound (ms)": ms_cells([b.host_bound_ns for b in steps]),
        }
    )


def stragglers_table(found: Sequence[Straggler]) -> pa.Table:
    """Ranks that were last, the one that cost most first."""
    busy = [None if s.worst_unit is None else unit_text(s.worst_unit) for s in found]
    return pa.table(
        {
            "rank": [s.rank for s in found],
            "times last": [s.times_last for s in found],
            "wait caused (ms)": ms_cells([s.wait_caused_ns for s in found]),
            "mostly busy with": ["(no unit at work)" if unit is None else unit for unit in busy],
            "late in that unit (ms)": ms_cells([s.worst_unit_late_ns for s in found]),
            "worst step": [s.worst_step for s in found],
            "late in that step (ms)": ms_cells([s.worst_step_late_ns for s in found]),
        }
    )


def waits_table(waits: Sequence[RankWait]) -> pa.Table:
    """Wait and transfer of every rank."""
    return pa.table(
        {
            "rank": [wait.rank for wait in waits],
            "matched": [wait.count for wait in waits],
            "waited (ms)": ms_cells([wait.wait_ns for wait in waits]),
            "transfer (ms)": ms_cells([wait.transfer_ns for wait in waits]),
        }
    )


def _group(name: str, description: str, size: int | None) -> str:
    words = " ".join(word for word in (description, name) if word) or "not recorded"
    return words if size is None else f"{words}, {size} ranks"


def _totals_table(key: dict[str, Any], totals: Sequence[CallTotal]) -> pa.Table:
    scale = byte_scale(max((total.size_bytes or 0 for total in totals), default=0))
    return pa.table(
        {
            **key,
            "calls": [total.count for total in totals],
            f"bytes ({scale.name})": size_cells([total.size_bytes for total in totals], scale),
            "total (ms)": ms_cells([total.total_ns for total in totals]),
            "exposed (ms)": ms_cells([total.exposed_ns for total in totals]),
            "overlapped (ms)": ms_cells([total.overlapped_ns for total in totals]),
            "algbw (GB/s)": _rates([total.algbw_bytes_per_s for total in totals]),
            "busbw (GB/s)": _rates([total.busbw_bytes_per_s for total in totals]),
        }
    )


def _rates(bytes_per_s: Sequence[float | None]) -> Any:
    return pa.array([None if rate is None else round(rate / 1e9, _DECIMALS) for rate in bytes_per_s], pa.float64())
