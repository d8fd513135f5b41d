"""Units have one set of labels wherever they are shown."""

from builder import RunBuilder

from fsdp_dashboard.values import arrow_table
from fsdp_profile.analysis.units.summaries import unit_summaries
from fsdp_profile.core.schema import UnitKind
from fsdp_profile.present.units import largest_units_table, units_table
from fsdp_profile.render.html.values import table_html
from fsdp_profile.render.markdown.values import table_markdown

LABELS = [
    "unit", "parameters", "sharded", "unsharded", "shards", "gathers", "reshards", "gathered time", "all-gather",
    "reduction", "exposed",
]  # fmt: skip


def units():
    b = RunBuilder().unit("", numel=3, sharded=2048, unsharded=4096).unit("a", numel=4, sharded=1024, unsharded=8192)
    return unit_summaries(b.build(), rank=0)


def test_every_renderer_heads_the_columns_alike():
    found = units_table(units(), rank=0)
    assert [one.label for one in found.columns] == LABELS
    assert all(f">{label}</th>" in table_html(found) for label in LABELS)
    assert table_markdown(found)[2].split("\n")[0] == f"| {' | '.join(LABELS)} |"
    assert [name.split(" (")[0] for name in arrow_table(found).column_names] == LABELS


def test_the_total_sums_what_can_be_summed():
    found = units_table(units(), rank=0, has_total=True)
    assert found.num_totals == 1
    assert found.rows()[-1][:8] == ("all", "7", "3.00 KiB", "12.00 KiB", "", "0", "0", "")


def test_a_bucket_of_ddp_is_neither_sharded_nor_gathered():
    run = RunBuilder().unit("bucket 0", kind=UnitKind.DDP_BUCKET, shard_size=1).build()
    labels = [one.label for one in units_table(unit_summaries(run, rank=0), rank=0).columns]
    assert labels == ["unit", "parameters", "size", "reduction", "exposed"]


def test_the_short_table_keeps_the_order_of_construction_and_the_labels():
    found = largest_units_table(units(), rank=0, num=1)
    assert [one.label for one in found.columns] == ["unit", "sharded", "unsharded", "gathers", "gathered time"]
    assert [row[0] for row in found.rows()] == ["a"]
    assert found.note == "the 1 largest of 2, rank 0, times summed over the training steps"
