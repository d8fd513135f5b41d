"""Tables as schema.py declares them: build, write, read, check."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsdp_profile.core.categories import CATEGORIES, FORMER_CODES
from fsdp_profile.core.errors import InputError, SchemaError
from fsdp_profile.core.schema import TABLES, Column

MAX_BYTES = 1 << 56
"""Larger sizes in a table are damage."""
FREE_TABLE_BYTES = 256 << 20
"""A table of a bundle may always become this large in memory."""
MAX_EXPANSION = 200
"""Beyond that, this many times its size in the file; recorded tables become 10 to 20 times as large."""
_THRIFT_LIMITS = {"thrift_string_size_limit": 64 << 20, "thrift_container_size_limit": 1 << 20}

_ARROW: dict[str, Any] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.dictionary(pa.int32(), pa.string()),
}


def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of one of our tables."""
    return pa.schema([pa.field(c.name, _ARROW[c.type], nullable=c.nullable) for c in TABLES[table]])


def make_table(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """A table from numpy arrays, lists or Arrow arrays, in the schema's order and types.

    A nullable column may be left out: it is null. A string column may be given as
    `(codes, words)`: int codes into a list of words.
    """
    arrays = []
    num_rows = _num_rows(columns)
    for column in TABLES[table]:
        if column.name not in columns:
            assert column.nullable, f"{table}.{column.name} is missing"
            arrays.append(_absent(column, num_rows))
        else:
            arrays.append(_array(column, columns[column.name]))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))


def empty_table(table: str) -> pa.Table:
    """The table with no rows."""
    return arrow_schema(table).empty_table()


def write_table(path: Path, table: pa.Table) -> None:
    """Write Parquet (zstd), whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        pq.write_table(table, partial, compression="zstd", compression_level=9)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_table(path: Path, table: str) -> pa.Table:
    """Read one of our tables; columns of a newer minor schema are dropped, missing nullable ones are null.

    Raises:
        InputError: damaged or not Parquet.
        SchemaError: a column is missing or has another type.
    """
    try:
        found = pq.read_table(path, use_threads=False)
    except (OSError, pa.ArrowException) as e:
        raise InputError(f"{path}: damaged or not Parquet ({str(e).splitlines()[0]}); record the run again") from e
    return _in_schema(found, table, where=str(path))


def table_of_parquet(content: bytes, table: str, *, where: str) -> pa.Table:
    """One of our tables from the bytes of a Parquet file that may come from anybody; `where` is what errors call it.

    Raises:
        InputError: damaged, not Parquet, or far larger in memory than in the file.
        SchemaError: a column is missing or has another type.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content), **_THRIFT_LIMITS)
        told = file.metadata
        # Counted from both ends: a run length can stand for any number of rows, a page for any number of bytes.
        pages = sum(told.row_group(i).total_byte_size for i in range(told.num_row_groups))
        memory = max(told.num_rows * told.num_columns * 8, pages)
        if memory > max(FREE_TABLE_BYTES, MAX_EXPANSION * len(content)):
            raise InputError(f"{where}: {len(content):,} bytes would become {memory:,} in memory; not opened")
        found = file.read(columns=_columns_in_file(table), use_threads=False)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as e:
        reason = (str(e).splitlines() or ["no message"])[0]
        raise InputError(f"{where}: damaged or not Parquet ({reason}); export the run again") from e
    return _in_schema(found, table, where=where)


def _columns_in_file(table: str) -> list[str]:
    """The columns of a table as this schema or a former one names them."""
    names = [column.name for column in TABLES[table]]
    return [*names, *(f"{code.lower()}_bytes" for code in FORMER_CODES)] if table == "memory_pyramid" else names


def parquet_bytes(table: pa.Table) -> bytes:
    """One of our tables as a Parquet file: the same bytes for the same rows, and no word that no row holds."""
    sink = pa.BufferOutputStream()
    pq.write_table(without_unused_words(table), sink, compression="zstd", compression_level=9)
    return bytes(sink.getvalue().to_pybytes())


def without_unused_words(table: pa.Table) -> pa.Table:
    """The table with dictionaries of the words in use: those a recording wrote hold all words of its log."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(number).cast(pa.string()).combine_chunks().dictionary_encode().cast(field.type)
            table = table.set_column(number, field, column)
    return table.replace_schema_metadata(None)


def _in_schema(found: pa.Table, table: str, *, where: str) -> pa.Table:
    """The table with exactly the schema's columns."""
    found = _with_todays_categories(found, table)
    arrays = []
    for column in TABLES[table]:
        if column.name not in found.column_names:
            if not column.nullable:
                raise SchemaError(f"{where}: column '{column.name}' is missing; record the run again")
            arrays.append(_absent(column, found.num_rows))
            continue
        array = found.column(column.name)
        want = _ARROW[column.type]
        same = array.type == want or (column.type == "string" and pa.types.is_string(array.type))
        if not same:
            raise SchemaError(
                f"{where}: column '{column.name}' is {array.type}, schema says {column.type}; record the run again"
            )
        if array.null_count and not column.nullable:
            raise InputError(f"{where}: column '{column.name}' has holes; record the run again")
        if column.name.endswith("_bytes") and _is_absurd(array):
            raise InputError(f"{where}: column '{column.name}' holds sizes no machine has; record the run again")
        arrays.append(array if array.type == want else array.dictionary_encode())
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table)).unify_dictionaries().combine_chunks()


def _with_todays_categories(found: pa.Table, table: str) -> pa.Table:
    """A table that schema 1 wrote, with the codes of today; categories that schema 1 did not know have no bytes."""
    former = {f"{code.lower()}_bytes": f"{category.lower()}_bytes" for code, category in FORMER_CODES.items()}
    if table == "memory_pyramid" and not {former[name] for name in former} & set(found.column_names):
        found = found.rename_columns([former.get(name, name) for name in found.column_names])
        for name in {f"{category.lower()}_bytes" for category in CATEGORIES} - set(found.column_names):
            found = found.append_column(name, pa.array(np.zeros(found.num_rows, np.int64)))
    elif "category" in found.column_names:
        number = found.column_names.index("category")
        chunks = found.column(number).chunks
        if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
            renamed = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices, pa.array(_todays(chunk.dictionary.to_pylist()), pa.string())
                )
                for chunk in chunks
            ]
            found = found.set_column(number, "category", pa.chunked_array(renamed))
    return found


def _todays(codes: list[Any]) -> list[Any]:
    return [str(FORMER_CODES.get(code, code)) if isinstance(code, str) else code for code in codes]


def _is_absurd(array: pa.ChunkedArray) -> bool:
    span = pc.min_max(array)
    low, high = span["min"].as_py(), span["max"].as_py()
    return low is not None and max(-low, high) > MAX_BYTES


def numbers(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A number column as a numpy array (no nulls in it)."""
    found: np.ndarray[Any, Any] = table.column(name).to_numpy()
    return found


def words(table: pa.Table, name: str) -> tuple[np.ndarray[Any, Any], list[str]]:
    """A string column as (codes, words)."""
    column = table.column(name)
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # no chunks at all
        return np.zeros(0, np.int32), []
    return array.indices.to_numpy(zero_copy_only=False), array.dictionary.to_pylist()


def strings(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A string column as a numpy array of Python strings."""
    codes, vocabulary = words(table, name)
    found: np.ndarray[Any, Any] = np.array([*vocabulary, ""], dtype=object)[codes]
    return found


def _num_rows(columns: Mapping[str, Any]) -> int:
    value = next(iter(columns.values()))
    return len(value[0]) if isinstance(value, tuple) else len(value)


def _absent(column: Column, num_rows: int) -> pa.Array:
    """A nullable column that is not there: null, and for text the empty word."""
    if column.type == "string":
        return _array(column, (np.zeros(num_rows, np.int32), [""]))
    return pa.nulls(num_rows, _ARROW[column.type])


def _array(column: Column, value: Any) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if column.type != "string":
        return value.cast(_ARROW[column.type]) if isinstance(value, pa.Array) else pa.array(value, _ARROW[column.type])
    if isinstance(value, tuple):
        codes, vocabulary = value
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(vocabulary), pa.string()))
    if isinstance(value, pa.DictionaryArray):
        return value.cast(_ARROW["string"])
    return pa.array(["" if v is None else str(v) for v in value], pa.string()).dictionary_encode()
