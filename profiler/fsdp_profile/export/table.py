"""Tables of a run as CSV, Parquet or Markdown: those of the schema, and the ledger over time.

Rows of all ranks, with the rank in front; of one rank where it is asked for.
"""

import io
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fsdp_profile.analysis.memory.ledger import timeline
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.schema import TABLES
from fsdp_profile.ingest.tables import numbers, without_unused_words
from fsdp_profile.render.markdown.tags import markdown_table

TIMELINE: Final = "timeline"
"""Live bytes after each allocator event, a column per category."""
PEAKS: Final = "peaks"
"""The peak of each rank by category."""
UNIT_TOTALS: Final = "unit_totals"
"""Units over the complete steps: bytes, gathers, times."""
NAMES: Final = (TIMELINE, PEAKS, UNIT_TOTALS, *TABLES)
MAX_MARKDOWN_ROWS: Final = 1_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def table_of(run: Run, *, table: str | None = None, rank: int | None = None) -> pa.Table:
    """One table of a run; column `rank` first.

    Raises:
        UsageError: no such table.
        InputError: no such rank, or its files are damaged.
    """
    name = table or TIMELINE
    if name not in NAMES:
        raise UsageError(f"--table {name}: no such table; give one of {', '.join(NAMES)}")
    parts = [_of_rank(run, name, one) for one in (run.ranks if rank is None else (rank,))]
    return pa.concat_tables([part.add_column(0, "rank", ranks) for part, ranks in parts], promote_options="default")


def csv_bytes(run: Run, *, table: str | None = None, rank: int | None = None) -> bytes:
    """CSV with a header. A name that a spreadsheet would run as a formula has an apostrophe in front."""
    found = _decoded(table_of(run, table=table, rank=rank))
    for number, field in enumerate(found.schema):
        if pa.types.is_string(field.type):
            used = found.column(number).combine_chunks().dictionary_encode()
            words = [f"'{w}" if w is not None and w.startswith(_FORMULA) else w for w in used.dictionary.to_pylist()]
            safe = pa.DictionaryArray.from_arrays(used.indices, pa.array(words, pa.string())).cast(pa.string())
            found = found.set_column(number, field.name, safe)
    sink = io.BytesIO()
    pyarrow.csv.write_csv(found, sink)
    return sink.getvalue()


def parquet_table(run: Run, *, table: str | None = None, rank: int | None = None) -> bytes:
    """Parquet (zstd)."""
    sink = io.BytesIO()
    found = without_unused_words(table_of(run, table=table, rank=rank))
    pq.write_table(found, sink, compression="zstd", compression_level=9)
    return sink.getvalue()


def markdown_bytes(run: Run, *, table: str | None = None, rank: int | None = None) -> bytes:
    """Markdown: one table, or without a name the report of the run.

    Raises:
        UsageError: no such table, or one with too many rows for a page.
    """
    if table is None:
        from fsdp_profile.render.markdown.report import markdown_report

        return markdown_report(run).encode()
    found = table_of(run, table=table, rank=rank)
    if found.num_rows > MAX_MARKDOWN_ROWS:
        raise UsageError(f"--table {table}: {found.num_rows:,} rows are no page of Markdown; export .csv or .parquet")
    rows = [list(row.values()) for row in found.to_pylist()]
    return (markdown_table(found.column_names, rows) + "\n").encode()


def _of_rank(run: Run, name: str, rank: int) -> tuple[pa.Table, pa.Array]:
    if name == TIMELINE:
        found = _timeline(run, rank)
    elif name == PEAKS:
        found = _peaks(run, rank)
    elif name == UNIT_TOTALS:
        found = pa.Table.from_pylist([{f: getattr(u, f) for f in u.__slots__} for u in unit_summaries(run, rank=rank)])
    else:
        found = _decoded(run.table(name, rank=rank))
    return found, pa.array(np.full(found.num_rows, rank, np.int32))


def _timeline(run: Run, rank: int) -> pa.Table:
    ledger, samples = timeline(run, rank=rank), run.table("memory_samples", rank=rank)
    return pa.table(
        {
            "t_ns": ledger.t_ns,
            "step": numbers(samples, "step"),
            "allocated_bytes": ledger.allocated_bytes,
            **{f"{category.lower()}_bytes": live for category, live in ledger.by_category.items()},
        }
    )


def _peaks(run: Run, rank: int) -> pa.Table:
    found = next(r.peak for r in rank_summaries(run) if r.rank == rank)
    if found is None:
        return pa.table({"category": pa.array([], pa.string()), "size_bytes": pa.array([], pa.int64())})
    rows = [{"category": str(category), "size_bytes": size} for category, size in found.by_category.items()]
    return pa.Table.from_pylist(rows)


def _decoded(table: pa.Table) -> pa.Table:
    """Text columns as text."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.string()))
    return table.replace_schema_metadata(None)
