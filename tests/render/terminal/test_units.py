from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.schema import UnitKind
from fsdp_profile.render.terminal.units import largest_units, units_report


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if "─" not in line]


def test_the_overview_keeps_the_eight_largest_in_order_of_construction():
    b = RunBuilder()
    for i in range(10):
        b.unit(f"layers.{i}", unsharded=i)
    text = printed(largest_units(unit_summaries(b.build(), rank=0), rank=0), width=100)
    assert text.startswith("Units  the 8 largest of 10, rank 0, ")
    assert [row[0] for row in rows_of(text)[2:]] == [f"layers.{i}" for i in range(2, 10)]


def test_no_units_is_no_table():
    assert largest_units([], rank=0) is None
    assert printed(units_report([], rank=3), width=40) == "Units  rank 3\nnot recorded\n"


def test_ddp_buckets_have_no_columns_of_gathering():
    run = RunBuilder().unit("bucket 0", numel=2, sharded=8, unsharded=8, kind=UnitKind.DDP_BUCKET, shard_size=1).build()
    text = printed(units_report(unit_summaries(run, rank=0), rank=0), width=100)
    assert rows_of(text)[1:4] == [
        ["unit", "parameters", "size", "reduction", "exposed"],
        ["bucket", "0", "2", "8", "B", "not", "recorded", "not", "recorded"],
        ["all", "2", "8", "B", "not", "recorded", "not", "recorded"],
    ]
