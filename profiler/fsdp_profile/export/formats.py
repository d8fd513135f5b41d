"""The registry of export formats: the one list that the command line and the Share page read.

A format is one entry of FORMATS. A writer imports what it needs when it is called, so that the list costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run

CHARTS: Final = ("memory", "peak", "ranks", "units")
"""Charts that an SVG can hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What to write of a run, where the format leaves a choice."""

    table: str | None = None
    """Name of a table; None is the format's default."""
    chart: str = CHARTS[0]
    rank: int | None = None
    """None: all ranks of a table, the rank with the highest peak of a chart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of file that a run can be exported as."""

    ending: str
    title: str
    """What the Share page calls it; '' keeps it off that page."""
    write: Callable[[Sequence[Run], Options], bytes]
    """The content of the file.

    Raises:
        InputError: a table is damaged, or there is no such rank.
        UsageError: no such table.
    """
    options: frozenset[str] = frozenset()
    """Fields of Options that it understands."""
    max_runs: int = 1


def _bundle(runs: Sequence[Run], _options: Options) -> bytes:
    from fsdp_profile.export.bundle import bundle_bytes

    return bundle_bytes(runs[0])


def _html(runs: Sequence[Run], _options: Options) -> bytes:
    from fsdp_profile.render.html.report import html_report

    return html_report(runs).encode()


def _perfetto(runs: Sequence[Run], _options: Options) -> bytes:
    from fsdp_profile.export.perfetto import trace_bytes

    return trace_bytes(runs[0])


def _perfetto_gzipped(runs: Sequence[Run], options: Options) -> bytes:
    from fsdp_profile.render.html.ledger import gzipped

    return gzipped(_perfetto(runs, options))


def _csv(runs: Sequence[Run], options: Options) -> bytes:
    from fsdp_profile.export.table import csv_bytes

    return csv_bytes(runs[0], table=options.table, rank=options.rank)


def _parquet(runs: Sequence[Run], options: Options) -> bytes:
    from fsdp_profile.export.table import parquet_table

    return parquet_table(runs[0], table=options.table, rank=options.rank)


def _markdown(runs: Sequence[Run], options: Options) -> bytes:
    from fsdp_profile.export.table import markdown_bytes

    return markdown_bytes(runs[0], table=options.table, rank=options.rank)


def _svg(runs: Sequence[Run], options: Options) -> bytes:
    from fsdp_profile.render.svg.charts import chart_svg

    return chart_svg(runs[0], chart=options.chart, rank=options.rank).encode()


_TABLE: Final = frozenset({"table", "rank"})

FORMATS: Final = (
    Format(ending=".fsdpz", title="Bundle: one file that fsdp-profile opens", write=_bundle),
    Format(ending=".html", title="HTML page that needs no network", write=_html, max_runs=2),
    Format(ending=".json", title="", write=_perfetto),
    Format(ending=".json.gz", title="Trace for Perfetto and chrome://tracing", write=_perfetto_gzipped),
    Format(ending=".csv", title="Memory over time as CSV", write=_csv, options=_TABLE),
    Format(ending=".parquet", title="", write=_parquet, options=_TABLE),
    Format(ending=".md", title="Report in Markdown", write=_markdown, options=_TABLE),
    Format(ending=".svg", title="Picture of memory over time", write=_svg, options=frozenset({"chart", "rank"})),
)
"""In the order in which they are offered."""

PERFETTO: Final = next(found for found in FORMATS if found.ending == ".json.gz")


def format_of(file_name: str) -> Format | None:
    """The format of a file's ending, the longest that fits; None for an unknown ending.

    >>> format_of("run.json.gz").title, format_of("run.txt")
    ('Trace for Perfetto and chrome://tracing', None)
    """
    fitting = [found for found in FORMATS if file_name.endswith(found.ending)]
    return max(fitting, key=lambda found: len(found.ending), default=None)
