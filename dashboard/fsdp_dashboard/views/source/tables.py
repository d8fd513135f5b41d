"""Source lines to a table that people read and sort. As in tables.py."""

import pyarrow as pa

from fsdp_dashboard.charts.labels import byte_scale, share_text
from fsdp_dashboard.tables import size_cells
from fsdp_dashboard.views.source.queries import SourceLines
from fsdp_profile.analysis.memory.call_sites import SourceLine
from fsdp_profile.core.humanize import bytes_text


def source_table(found: SourceLines) -> pa.Table:
    """One row per line, most bytes first."""
    lines, whole = found.lines, found.peak.allocated_bytes
    sizes = [line.size_bytes for line in lines]
    scale = byte_scale(max(sizes, default=0))
    return pa.table(
        {
            f"bytes ({scale.name})": size_cells(sizes, scale),
            "of the peak": [share_text(size, whole) for size in sizes],
            "line": [f"{line.file}:{line.line}" for line in lines],
            "function": [line.function for line in lines],
            "blocks": [line.num_blocks for line in lines],
            "categories": [_parts(line) for line in lines],
        }
    )


def _parts(line: SourceLine) -> str:
    if len(line.by_category) == 1:
        return str(next(iter(line.by_category)))
    return ", ".join(f"{category} {bytes_text(size)}" for category, size in line.by_category.items())
