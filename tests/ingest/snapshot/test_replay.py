"""The replay equals a direct simulation whatever the ring buffer lost; gaps leave possible totals."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.snapshot.snapshot_factory import block, event, only_history, round_up, segment, simulate, snapshot

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.snapshot.reader import Totals, history_from_snapshot

numbers = st.integers(min_value=0, max_value=1 << 20)
sizes = st.integers(min_value=1, max_value=30_000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), sizes),
        st.tuples(st.just("alloc"), sizes),
        st.tuples(st.sampled_from(["free", "request_free", "complete_free", "release"]), numbers),
        st.tuples(st.sampled_from(["snapshot", "user_defined", "of_a_later_torch"]), numbers),
    ),
    max_size=80,
)
thorough = settings(max_examples=300, deadline=None, database=None)


def replayed(history):
    return {name: history.samples[f"{name}_bytes"].to_pylist() for name in ("allocated", "active", "reserved")}


@given(steps=steps, data=st.data())
@thorough
def test_ring_buffer_that_lost_the_beginning_replays_exactly(steps, data):
    truth = simulate(steps)
    num_events = len(truth.events)
    cut = data.draw(st.integers(min_value=0, max_value=num_events))
    taken = truth.snapshot(first_event=cut)
    if not taken["segments"] and cut == num_events:
        assert history_from_snapshot(taken) == []
        return
    history = only_history(taken)
    kept = truth.events[cut:]
    allocated = truth.allocated[cut:]
    if kept and not any(e["action"] == "free_requested" for e in kept):
        # nothing tells that requests are recorded at all: what is completed counts as allocated until then
        freed = [round_up(e["size"]) if e["action"] == "free_completed" else 0 for e in kept]
        allocated = [a + sum(freed[i + 1 :]) for i, a in enumerate(allocated)]
    assert replayed(history) == {
        "allocated": allocated,
        "active": truth.active[cut:],
        "reserved": truth.reserved[cut:],
    }
    assert history.start.active_bytes == (truth.active[cut - 1] if cut else 0)
    assert history.start.reserved_bytes == (truth.reserved[cut - 1] if cut else 0)
    lives = [b for b in truth.blocks if b.end_event is None or b.end_event >= cut]
    columns = ("address", "size_bytes", "start_event", "end_event", "preexisting")
    found = {tuple(row.values()) for row in history.blocks.select(columns).to_pylist()}
    assert found == {
        (
            b.address,
            b.size,
            max(b.start_event - cut, 0),
            NOT_FREED if b.end_event is None else b.end_event - cut,
            b.start_event < cut,
        )
        for b in lives
    }


@given(steps=steps, skipped=st.sampled_from(["free_requested", "free_completed"]))
@thorough
def test_history_recorded_without_one_kind_of_free(steps, skipped):
    truth = simulate(steps)
    taken = truth.snapshot()
    kept = [i for i, e in enumerate(truth.events) if e["action"] != skipped]
    taken["device_traces"] = [[truth.events[i] for i in kept]]
    for history in history_from_snapshot(taken):
        series = replayed(history)
        assert series["reserved"] == [truth.reserved[i] for i in kept]
        if skipped == "free_requested" and not any(b.requested_event is not None for b in truth.in_use()):
            assert series["active"] == [truth.active[i] for i in kept]
        if skipped == "free_completed":
            assert series["allocated"] == [truth.allocated[i] for i in kept]


@given(steps=steps, data=st.data())
@thorough
def test_any_lost_events_leave_totals_that_are_possible_and_end_as_the_segments_do(steps, data):
    truth = simulate(steps)
    taken = truth.snapshot()
    lost = data.draw(st.sets(st.integers(min_value=0, max_value=max(len(truth.events) - 1, 0))))
    taken["device_traces"] = [[e for i, e in enumerate(truth.events) if i not in lost]]
    for history in history_from_snapshot(taken):
        series = {name: np.array(values, np.int64) for name, values in replayed(history).items()}
        assert all((values >= 0).all() for values in series.values())
        assert (series["active"] >= series["allocated"]).all()
        assert history.end == Totals(
            allocated_bytes=truth.allocated[-1],
            active_bytes=truth.active[-1],
            reserved_bytes=truth.reserved[-1],
        )
        rows = history.blocks.to_pylist()
        assert all(r["start_event"] <= r["end_requested_event"] or r["end_requested_event"] == -1 for r in rows)
        assert all(r["end_requested_event"] <= r["end_event"] for r in rows)
        by_address = sorted(rows, key=lambda r: (r["address"], r["start_event"], r["end_event"]))
        for before, after in pairwise(by_address):
            assert before["address"] != after["address"] or before["end_event"] <= after["start_event"]


def test_alloc_over_a_live_block_ends_it():
    events = [event("alloc"), event("snapshot"), event("alloc"), event("snapshot")]
    history = only_history(snapshot(*events, segments=[segment(block())]))
    assert history.blocks["end_event"].to_pylist() == [2, NOT_FREED]
    assert history.blocks["free_unreported"].to_pylist() == [True, False]
    assert history.samples["active_bytes"].to_pylist() == [512] * 4


def test_block_freed_by_the_events_and_allocated_at_the_end_was_allocated_again():
    events = [event("alloc"), event("free_requested"), event("snapshot")]
    history = only_history(snapshot(*events, segments=[segment(block())]))
    assert history.blocks["start_event"].to_pylist() == [0, 1]
    assert history.blocks["end_event"].to_pylist() == [1, NOT_FREED]
    assert history.samples["allocated_bytes"].to_pylist() == [512, 512, 512]
    assert history.warnings[0].startswith("blocks whose alloc is missing: 1 (512 bytes)")


def test_block_gone_at_the_end_without_a_free_ends_at_the_last_event():
    history = only_history(snapshot(event("alloc", us=1), event("snapshot", us=2), event("snapshot", us=3)))
    assert history.samples["active_bytes"].to_pylist() == [512, 512, 0]
    assert history.blocks["end_ns"].to_pylist() == [3000]
    assert history.warnings[0].startswith("blocks whose completed free is missing: 1 (512 bytes)")


def test_without_segments_what_the_events_leave_is_live():
    taken = snapshot(event("segment_free", size=2048), event("alloc"), event("segment_alloc", size=1024))
    del taken["segments"]
    history = only_history(taken)
    assert history.blocks["end_ns"].to_pylist() == [NOT_FREED]
    assert history.samples["reserved_bytes"].to_pylist() == [0, 0, 1024]
    assert history.start.reserved_bytes == 2048
    assert history.warnings[0].startswith("no segments in the snapshot")


def test_free_requested_before_the_recording():
    taken = snapshot(
        event("alloc", 512, us=1),
        event("free_requested", 512, us=2),
        event("free_completed", 0, us=3),  # its request was lost, though requests are recorded
        event("free_completed", 512, us=4),
        segments=[segment()],
    )
    history = only_history(taken)
    assert history.samples["allocated_bytes"].to_pylist() == [512, 0, 0, 0]
    assert history.samples["active_bytes"].to_pylist() == [1024, 1024, 512, 0]
    assert history.blocks["end_requested_event"].to_pylist() == [-1, 1]
