"""The planner against published numbers: states to every printed digit, the table of docs/planner.md as generated."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

spec = importlib.util.spec_from_file_location("planner_rows", ROOT / "docs" / "planner_rows.py")
assert spec is not None and spec.loader is not None
planner_rows = importlib.util.module_from_spec(spec)
import sys  # noqa: E402

sys.modules["planner_rows"] = planner_rows
spec.loader.exec_module(planner_rows)

ROWS = list(planner_rows.rows())
STATES = [row for row in ROWS if row.is_states]
ESTIMATES = [row for row in ROWS if not row.is_states]


@pytest.mark.parametrize("row", STATES, ids=[row.key for row in STATES])
def test_states_are_exact_to_every_printed_digit(row) -> None:
    assert [(n.what, n.published, round(n.ours, n.digits)) for n in row.numbers] == [
        (n.what, n.published, n.published) for n in row.numbers
    ]


def test_every_published_row_is_there() -> None:
    assert {row.key for row in ROWS} == {
        "1", "3", "4", "5", "6", "8", "9", "10", "12", "14", "15", "16", "17", "18", "20", "22", "23", "25", "26", "27",
        "28", "30", "S1", "S2", "S3", "S4", "D1", "D21",
    }  # fmt: skip


@pytest.mark.parametrize("row", ESTIMATES, ids=[row.key for row in ESTIMATES])
def test_an_estimate_says_what_is_not_modelled(row) -> None:
    assert row.left_out
    assert all(n.ours is not None or "no value" in row.left_out for n in row.numbers)


def test_the_table_of_the_page_is_generated() -> None:
    page = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    shown = page.partition(planner_rows.BEGIN)[2].partition(planner_rows.END)[0].strip()
    assert shown == planner_rows.table()
