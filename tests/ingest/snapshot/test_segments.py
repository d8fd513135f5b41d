"""Segments, pending frees and failed allocations as tables: at every event they sum to the allocator's totals."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.snapshot.snapshot_factory import block, event, only_history, segment, simulate, snapshot

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.snapshot.segments import pool_tables

MIB = 1 << 20
numbers = st.integers(min_value=0, max_value=1 << 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), st.integers(min_value=1, max_value=30_000)),
        st.tuples(st.sampled_from(["free", "request_free", "complete_free", "release"]), numbers),
    ),
    min_size=1,
    max_size=60,
)


def sums(table, num_events):
    """Bytes alive after each event."""
    start, end, size = (table.column(n).to_numpy() for n in ("start_event", "end_event", "size_bytes"))
    return [int(size[(start <= e) & (end > e)].sum()) for e in range(1, num_events + 1)]


@given(steps=steps, data=st.data())
@settings(max_examples=200, deadline=None, database=None)
def test_pieces_sum_to_what_was_reserved_whatever_the_ring_buffer_lost(steps, data):
    truth = simulate(steps)
    num_events = len(truth.events)
    cut = data.draw(st.integers(min_value=0, max_value=max(num_events - 1, 0)))
    if num_events == 0:
        return
    history = only_history(truth.snapshot(first_event=cut))
    tables = pool_tables(history)
    assert sums(tables["segments"], num_events - cut) == truth.reserved[cut:]
    held = np.array(truth.active) - np.array(truth.allocated)
    if any(e["action"] == "free_requested" for e in truth.events[cut:]) or cut == 0:
        assert sums(tables["pending_frees"], num_events - cut) == held[cut:].tolist()


def rows(table, *names):
    return [tuple(row.values()) for row in table.select(names).to_pylist()]


def test_an_unmap_takes_part_of_two_maps():
    history = only_history(
        snapshot(
            event("segment_map", 0, 4 * MIB, us=1),
            event("segment_map", 4 * MIB, 4 * MIB, us=2),
            event("segment_unmap", 2 * MIB, 4 * MIB, us=3),
            segments=[
                segment(address=0, total_size=2 * MIB, is_expandable=True, segment_pool_id=(0, 0)),
                segment(address=6 * MIB, total_size=2 * MIB, is_expandable=True, segment_pool_id=(0, 0)),
            ],
        )
    )
    found = rows(pool_tables(history)["segments"], "address", "size_bytes", "start_event", "end_event", "pool")
    assert found == [
        (0, 2 * MIB, 1, NOT_FREED, "0,0"),
        (2 * MIB, 2 * MIB, 1, 3, "0,0"),
        (4 * MIB, 2 * MIB, 2, 3, "0,0"),
        (6 * MIB, 2 * MIB, 2, NOT_FREED, "0,0"),
    ]


def test_a_segment_whose_end_was_lost_is_gone_at_the_last_event():
    history = only_history(
        snapshot(
            event("segment_alloc", 0, 2 * MIB, us=1),
            event("segment_alloc", 8 * MIB, 2 * MIB, us=2),
            segments=[segment(address=8 * MIB, total_size=2 * MIB)],
        )
    )
    assert rows(pool_tables(history)["segments"], "address", "start_event", "end_event") == [
        (0, 1, 2), (8 * MIB, 2, NOT_FREED),
    ]  # fmt: skip


def test_a_block_held_by_a_stream_and_a_failed_allocation():
    history = only_history(
        snapshot(
            event("segment_alloc", 0, 2 * MIB, us=1),
            event("alloc", 0, MIB, us=2, stream=7),
            event("free_requested", 0, MIB, us=3, stream=7),
            event("oom", 0, 64 * MIB, us=4, device_free=3 * MIB),
            event("free_completed", 0, MIB, us=5, stream=7),
            segments=[segment(block(address=0, size=2 * MIB, state="inactive"), address=0, total_size=2 * MIB)],
        )
    )
    tables = pool_tables(history)
    names = ("size_bytes", "start_event", "end_event", "stream")
    assert rows(tables["pending_frees"], *names) == [(MIB, 3, 5, 7)]
    assert rows(tables["ooms"], "event", "asked_bytes", "device_free_bytes") == [(4, 64 * MIB, 3 * MIB)]
