"""Every format by the ending of its file: the one list that the command line and the dashboard share."""

from collections.abc import Callable, Sequence
from typing import Final

from fsdp_profile.analysis.run import Run
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.export.perfetto import trace_bytes
from fsdp_profile.export.table import csv_bytes, markdown_bytes, parquet_table
from fsdp_profile.render.html.ledger import gzipped
from fsdp_profile.render.html.report import html_report
from fsdp_profile.render.svg.charts import chart_svg

_TABLES: Final[dict[str, Callable[..., bytes]]] = {
    ".csv": csv_bytes,
    ".parquet": parquet_table,
    ".md": markdown_bytes,
}


def exported(
    runs: Sequence[Run], ending: str, *, table: str | None = None, chart: str = "memory", rank: int | None = None
) -> bytes:
    """The content of a file with this ending; only `.html` takes two runs.

    Raises:
        InputError: a table is damaged, or there is no such rank.
        UsageError: no such table.
    """
    run = runs[0]
    if ending == ".fsdpz":
        return bundle_bytes(run)
    if ending == ".html":
        return html_report(runs).encode()
    if ending == ".json":
        return trace_bytes(run)
    if ending == ".json.gz":
        return gzipped(trace_bytes(run))
    if ending == ".svg":
        return chart_svg(run, chart=chart, rank=rank).encode()
    return _TABLES[ending](run, table=table, rank=rank)
