"""Sentences, facts and tables of present/ as the Markdown and the Arrow tables that Streamlit shows."""

from collections.abc import Iterable

import pyarrow as pa

from fsdp_dashboard.charts.labels import ByteScale, byte_scale
from fsdp_dashboard.text import code
from fsdp_profile.present.values import Column, Fact, Mark, Sentence, Table, Unit

_DECIMALS = 3
_BYTES = (Unit.BYTES, Unit.BYTES_CHANGE)


def markdown(sentence: Sentence) -> str:
    """A sentence as Markdown: a name from a run is a code span, in which no mark-up works."""
    words = []
    for part in sentence.parts:
        words.append(code(part.text) if part.mark is Mark.NAME else part.text)
        if part.mark is Mark.STRONG:
            words[-1] = f"**{part.text}**"
    return "".join(words)


def arrow_table(table: Table) -> pa.Table:
    """A table whose columns sort: bytes in one unit for the whole table, durations in ms; an absent value is null."""
    sizes = [
        abs(int(value))
        for column in table.columns
        if column.unit in _BYTES
        for value in column.values
        if isinstance(value, int | float)
    ]
    scale = byte_scale(max(sizes, default=0))
    return pa.table(dict(_column(column, scale) for column in table.columns))


def facts_table(found: Iterable[Fact], *, header: tuple[str, str] = ("fact", "value")) -> pa.Table:
    """Facts as two columns."""
    rows = [(fact.label, fact.value.text) for fact in found]
    return pa.table({header[0]: [label for label, _ in rows], header[1]: [text for _, text in rows]})


def _column(column: Column, scale: ByteScale) -> tuple[str, pa.Array]:
    if column.unit in _BYTES:
        cells = [None if v is None else round(float(scale.of(int(v))), _DECIMALS) for v in column.values]
        return f"{column.label} ({scale.name})", pa.array(cells, pa.float64())
    if column.unit is Unit.NS:
        return f"{column.label} (ms)", pa.array(
            [None if v is None else round(int(v) / 1e6, _DECIMALS) for v in column.values], pa.float64()
        )
    if column.unit in (Unit.RATIO, Unit.FINE_RATIO):
        return f"{column.label} (%)", pa.array(
            [None if v is None else round(float(v) * 100, _DECIMALS) for v in column.values], pa.float64()
        )
    if column.unit is Unit.RATE:
        return f"{column.label} (GB/s)", pa.array(
            [None if v is None else round(float(v) / 1e9, _DECIMALS) for v in column.values], pa.float64()
        )
    cells = pa.array(list(column.values))
    return column.label, cells.cast(pa.int64()) if column.is_number and pa.types.is_null(cells.type) else cells
