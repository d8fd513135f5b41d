"""One waterfall for every renderer: no level is left out anywhere."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
from render.terminal.samples import printed

from fsdp_dashboard.values import arrow_table
from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.present.device_waterfall import waterfall_parts, waterfall_table
from fsdp_profile.render.html.values import table_html
from fsdp_profile.render.markdown.values import table_markdown
from fsdp_profile.render.terminal.waterfall import waterfall_report

MIB = 1 << 20
FOUND = Waterfall(rank=2, t_ns=5, event=7, allocated_bytes=12 * MIB, pending_free_bytes=MIB,
                  reserved_unused_bytes=7 * MIB, reserved_bytes=20 * MIB, largest_free_bytes=None, pools=(),
                  device_used_bytes=90 * MIB, process_used_bytes=40 * MIB, device_total_bytes=100 * MIB)  # fmt: skip
ROWS = [
    ("allocated", "12.00 MiB"),
    ("+ freed but held by a stream", "1.00 MiB"),
    ("+ cached", "7.00 MiB"),
    ("= reserved", "20.00 MiB"),
    ("+ outside PyTorch", "70.00 MiB"),
    ("   of it this process", "20.00 MiB"),
    ("   of it other processes", "50.00 MiB"),
    ("= device used", "90.00 MiB"),
    ("device size", "100.00 MiB"),
]


def test_the_table_has_every_level():
    assert [row[:2] for row in waterfall_table(FOUND).rows()] == ROWS
    assert waterfall_table(FOUND).note == "rank 2, at the peak"


@pytest.mark.parametrize("text", [
    printed(waterfall_report(FOUND), width=80),
    table_html(waterfall_table(FOUND)),
    "\n".join(table_markdown(waterfall_table(FOUND))),
], ids=["terminal", "html", "markdown"])  # fmt: skip
def test_every_renderer_shows_every_level(text):
    for label, size in ROWS:
        assert label.strip() in text.replace("\\", "")
        assert size in text


def test_the_dashboard_shows_every_level_as_numbers():
    found = arrow_table(waterfall_table(FOUND))
    assert found.column_names == ["level", "bytes (MiB)", "what it is"]
    assert found.column("level").to_pylist() == [label for label, _ in ROWS]
    assert found.column("bytes (MiB)").to_pylist() == [12, 1, 7, 20, 70, 20, 50, 90, 100]


def test_the_parts_of_the_bar_add_up_to_what_the_device_has_in_use():
    assert waterfall_parts(FOUND) == [
        ("allocated", 12 * MIB),
        ("freed but held by a stream", MIB),
        ("cached", 7 * MIB),
        ("outside PyTorch, this process", 20 * MIB),
        ("outside PyTorch, other processes", 50 * MIB),
    ]


def test_the_table_reads_the_fields_of_a_waterfall_and_of_nothing_else():
    untyped = SimpleNamespace(**{field.name: getattr(FOUND, field.name) for field in fields(FOUND)})
    with pytest.raises(AttributeError):  # the levels are properties: a field that is missing is not skipped
        waterfall_table(untyped)
