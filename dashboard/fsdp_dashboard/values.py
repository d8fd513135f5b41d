"""Sentences, facts and tables of present/ as the Markdown and the Arrow tables that Streamlit shows."""

from collections.abc import Iterable

import pyarrow as pa

from fsdp_dashboard.charts.labels import ByteScale, byte_scale
from fsdp_dashboard.text import code
from fsdp_profile.present.values import Column, Fact, Mark, Sentence, Table, Unit

_DECIMALS = 3


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
    scale = byte_scale(max(map(_largest, table.columns), default=0))
    found: dict[str, pa.Array] = {}
    for column, before in zip(table.columns, (None, *table.columns), strict=False):
        is_change = column.follows and column.unit is Unit.BYTES_CHANGE and before is not None
        label = f"Δ {before.label}" if is_change and before is not None else column.label
        header, cells = _cells(column, label, scale)
        found[header] = cells
    return pa.table(found)


def facts_table(found: Iterable[Fact], *, header: tuple[str, str] = ("fact", "value")) -> pa.Table:
    """Facts as two columns."""
    rows = [(fact.label, fact.value.text) for fact in found]
    return pa.table({header[0]: [label for label, _ in rows], header[1]: [text for _, text in rows]})


def _largest(column: Column) -> int:
    """The most bytes in a column; 0 for a column of anything else."""
    if column.unit not in (Unit.BYTES, Unit.BYTES_CHANGE):
        return 0
    return int(max((abs(value) for value in column.values if isinstance(value, int | float)), default=0))


def _cells(column: Column, label: str, scale: ByteScale) -> tuple[str, pa.Array]:
    per_unit = {
        Unit.BYTES: (scale.name, scale.unit_bytes),
        Unit.BYTES_CHANGE: (scale.name, scale.unit_bytes),
        Unit.NS: ("ms", 1e6),
        Unit.RATIO: ("%", 0.01),
        Unit.RATE: ("GB/s", 1e9),
    }
    if column.unit in per_unit:
        name, unit = per_unit[column.unit]
        numbers = [value if isinstance(value, int | float) else None for value in column.values]
        cells = [None if number is None else round(number / unit, _DECIMALS) for number in numbers]
        return f"{label} ({name})", pa.array(cells, pa.float64())
    if column.unit is Unit.COUNT and all(value is None or isinstance(value, int) for value in column.values):
        return label, pa.array(list(column.values), pa.int64())
    absent = [value is None for value in column.values]
    texts = [None if is_absent else text for text, is_absent in zip(column.texts(), absent, strict=True)]
    return label, pa.array(texts, pa.string())
