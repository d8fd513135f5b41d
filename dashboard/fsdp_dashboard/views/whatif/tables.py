"""Plans as tables that people read."""

from collections.abc import Sequence

import pyarrow as pa

from fsdp_dashboard.views.whatif.queries import Device, PlanRow, fits_text
from fsdp_profile.core.humanize import bytes_text, decimal_text, ratio_text


def plan_table(rows: Sequence[PlanRow], device: Device | None) -> pa.Table:
    """One line for each row; what is not known says so."""
    columns = {
        "strategy": [str(row.layout) for row in rows],
        "ranks": [row.world_size for row in rows],
        "basis": [str(row.basis) for row in rows],
        "states": [bytes_text(row.states_bytes) for row in rows],
        "states in GB": [decimal_text(row.states_bytes) for row in rows],
        "gathered": [_size(row.gathered_bytes) for row in rows],
        "unreduced": [_size(row.reduced_bytes) for row in rows],
        "activations": [_size(row.activation_bytes) for row in rows],
        "peak": [_size(row.peak_bytes) for row in rows],
    }
    if any(row.error_ratio is not None for row in rows):
        columns["error"] = [
            "not measured" if row.error_ratio is None else f"±{ratio_text(row.error_ratio)}" for row in rows
        ]
    if any(row.traffic_bytes is not None for row in rows):
        columns["sent per step"] = [_size(row.traffic_bytes) for row in rows]
    if device is not None:
        columns[device.title] = [fits_text(row, device) for row in rows]
    return pa.table(columns)


def _size(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else bytes_text(size_bytes)
