"""Runs of schema 1 are read with the categories of today."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from builder import RunBuilder

from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest.manifest import parse_manifest
from fsdp_profile.ingest.tables import arrow_schema, read_table, table_of_parquet


def test_a_manifest_of_schema_1_is_read_and_is_then_one_of_today() -> None:
    assert parse_manifest(b'{"schema": "1.1", "name": "r", "created": "now"}', where="x").schema == "2.0"


def test_categories_of_schema_1_have_todays_codes(tmp_path: Path) -> None:
    RunBuilder(path=tmp_path).alloc(at=1, size=4, category=Category.PARAM).step(0, 0, 9).build()
    path = layout.table_path(tmp_path, 0, "allocations")
    table = pq.read_table(path)
    number = table.column_names.index("category")
    pq.write_table(table.set_column(number, "category", pa.array(["SHARDED_PARAM"]).dictionary_encode()), path)
    assert read_table(path, "allocations").column("category").to_pylist() == ["PARAM"]


def test_a_pyramid_of_schema_1_has_no_bytes_of_later_categories(tmp_path: Path) -> None:
    path = tmp_path / "memory_pyramid.parquet"
    fields = {field.name: pa.array([7], field.type) for field in arrow_schema("memory_pyramid")}
    del fields["workspace_bytes"]
    fields = {
        {"param_bytes": "sharded_param_bytes", "grad_bytes": "sharded_grad_bytes"}.get(n, n): v
        for n, v in fields.items()
    }
    pq.write_table(pa.table(fields), path)
    for found in (read_table(path, "memory_pyramid"), table_of_parquet(path.read_bytes(), "memory_pyramid", where="x")):
        assert found.column("param_bytes").to_pylist() == found.column("grad_bytes").to_pylist() == [7]
        assert found.column("workspace_bytes").to_pylist() == [0]
