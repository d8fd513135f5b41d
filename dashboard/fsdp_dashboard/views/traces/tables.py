"""Tables of the Traces page."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.tables import ms_cells, size_cells
from fsdp_dashboard.views.traces.queries import TraceFile
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.hta.runner import HtaTable

_DECIMALS = 3


def traces_table(traces: Sequence[TraceFile]) -> pa.Table:
    """One row per Kineto trace."""
    known = [trace.size_bytes for trace in traces if trace.size_bytes is not None]
    scale = byte_scale(max(known, default=0))
    where = [
        "in the run" if trace.size_bytes is not None else "not kept: the run was imported from it" for trace in traces
    ]
    columns: dict[str, Any] = {
        "rank": [trace.rank for trace in traces],
        "trace": [trace.name for trace in traces],
        "where": where,
    }
    if known:
        columns[f"size ({scale.name})"] = size_cells([trace.size_bytes for trace in traces], scale)
    return pa.table(columns)


def hta_table(table: HtaTable) -> pa.Table:
    """One of HTA's tables as it is; a column of mixed values becomes text."""
    columns = {}
    for number, name in enumerate(table.columns):
        values = [row[number] for row in table.rows]
        is_number = all(value is None or (isinstance(value, int | float) and value is not True) for value in values)
        columns[name] = values if is_number else ["" if value is None else str(value) for value in values]
    return pa.table(columns)


def overlap_table(ours: dict[int, CollectiveSummary | None]) -> pa.Table:
    """Our own exposed and overlapped time, one row per rank."""

    def times(of: Callable[[CollectiveSummary], int | None]) -> Any:
        return ms_cells([None if found is None else of(found) for found in ours.values()])

    shares = [
        None
        if found is None or found.overlapped_ns is None or not found.total_ns
        else round(found.overlapped_ns / found.total_ns * 100, _DECIMALS)
        for found in ours.values()
    ]
    return pa.table(
        {
            "rank": list(ours),
            "collectives (ms)": times(lambda found: found.total_ns),
            "exposed (ms)": times(lambda found: found.exposed_ns),
            "overlapped (ms)": times(lambda found: found.overlapped_ns),
            "overlapped (%)": pa.array(shares, pa.float64()),
        }
    )
