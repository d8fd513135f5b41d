"""Every row of a level was, the greatest total of its bins is exact, and a window has its finest rows."""

import numpy as np
import pytest
from builder import RunBuilder
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.analysis.memory.ledger import timeline
from fsdp_profile.analysis.memory.pyramid import between, whole
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest import memory_pyramid
from fsdp_profile.ingest.memory_pyramid import BIN_EVENTS, FACTOR, level_events, pyramid_columns
from fsdp_profile.ingest.tables import make_table, numbers, write_table


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=3_000), st.data())
def test_a_window_of_whole_bins_has_its_least_and_greatest_total_on_every_level(total, data):
    total = np.array(total, np.int64)
    for number, events in enumerate(level_events(total)):
        width = BIN_EVENTS * FACTOR**number
        bins = -(-len(total) // width)
        assert (np.diff(events) > 0).all()
        assert (events[0], events[-1]) == (0, len(total) - 1)
        assert len(events) <= 3 * bins + 1
        assert {min((k + 1) * width, len(total)) - 1 for k in range(bins)} <= set(events.tolist())
        first = data.draw(st.integers(0, bins - 1))
        stop = data.draw(st.integers(first + 1, bins))
        mine = events[(events >= first * width) & (events < stop * width)]
        window = total[first * width : stop * width]
        assert (total[mine].min(), total[mine].max()) == (window.min(), window.max())


@pytest.fixture(scope="module")
def run():
    """601 events in two steps: blocks of two categories come and go over one that stays."""
    builder = RunBuilder().step(-1, 0, 5).step(0, 5, 2_000).step(1, 2_000, 4_000)
    builder.alloc(at=1, size=1_000, category=Category.PARAM)
    for i in range(300):
        category = Category.ACTIVATION if i % 3 else Category.TEMPORARY
        builder.alloc(at=10 + 10 * i, free=10 + 10 * i + 35, size=1 + (i * 7919) % 1000, category=category)
    return builder.build()


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_pyramid, "TOP_ROWS", 4)
        yield


def test_every_row_of_a_level_was_and_the_peak_is_exact(run):
    ledger = timeline(run, rank=0)
    states = np.stack([ledger.allocated_bytes, *ledger.by_category.values()])
    for max_rows, bin_events in ((700, 1), (100, 64), (10, 256), (1, 1024)):
        found = whole(run, rank=0, max_rows=max_rows)
        assert found.bin_events == bin_events
        kept = np.stack([found.ledger.allocated_bytes, *found.ledger.by_category.values()])
        assert kept.tolist() == states[:, found.ledger.event].tolist()
        assert found.ledger.allocated_bytes.max() == ledger.allocated_bytes.max()
        assert found.ledger.t_ns.tolist() == ledger.t_ns[found.ledger.event].tolist()


def test_a_short_stretch_of_time_has_every_event_and_the_one_before_it(run):
    ledger = timeline(run, rank=0)
    found = between(run, rank=0, start_ns=500, end_ns=800, max_rows=100)
    expected = np.flatnonzero((ledger.t_ns > 500) & (ledger.t_ns <= 800))
    assert found.bin_events == 1
    at_start = int(np.flatnonzero(ledger.t_ns <= 500)[-1])
    assert found.ledger.event.tolist() == [at_start, *expected.tolist()]


def test_a_long_stretch_has_the_finest_level_that_fits(run):
    found = between(run, rank=0, start_ns=500, end_ns=2_500, max_rows=30)
    assert found.bin_events == 64
    assert 0 < len(found.ledger.event) <= 30
    assert ((found.ledger.t_ns >= 490) & (found.ledger.t_ns <= 2_500)).all()


def test_the_table_that_was_written_is_read(run, tmp_path):
    samples, blocks = run.table("memory_samples", rank=0), run.table("allocations", rank=0)
    table = make_table("memory_pyramid", pyramid_columns(samples, blocks))
    expected = whole(run, rank=0, max_rows=100)
    path = layout.table_path(run.path, 0, "memory_pyramid")
    write_table(path, table.slice(0, int((numbers(table, "level") == 0).sum())))
    try:
        found = whole(run, rank=0, max_rows=100)
    finally:
        path.unlink()
    assert found.ledger.event.tolist() == expected.ledger.event.tolist()
    assert found.bin_events == 64
