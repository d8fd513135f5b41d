import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.rank.pairing import Ledger, pair_cpu_events

Event = tuple[int, int, int]  # (t_ns, address, delta_bytes)


def pair(
    events: list[Event],
    *,
    transport: list[int] | None = None,
    transport_end: list[int] | None = None,
    drops: list[tuple[int, int]] | None = None,
    tags: list[tuple[int, int]] | None = None,
    base: int = 0,
) -> Ledger:
    """Pair events whose allocator never notices an unreported free, as torch's does."""
    delta = np.array([e[2] for e in events], np.int64)
    dropped, tagged = drops or [], tags or []
    return pair_cpu_events(
        t_ns=np.array([e[0] for e in events], np.int64),
        address=np.array([e[1] for e in events], np.uint64),
        delta_bytes=delta,
        reported_bytes=delta.cumsum() + base,
        operator=np.zeros(len(events), np.int32),
        transport=np.array(transport or [-1] * len(events), np.int64),
        transport_end_ns=np.array(transport_end or [], np.int64),
        drops={
            "t_ns": np.array([d[0] for d in dropped], np.int64),
            "address": np.array([d[1] for d in dropped], np.uint64),
        },
        tags={
            "t_ns": np.array([t[0] for t in tagged], np.int64),
            "address": np.array([t[1] for t in tagged], np.uint64),
        },
    )


def test_an_alloc_ends_with_the_next_free_of_its_address() -> None:
    ledger = pair([(1, 100, 8), (2, 200, 4), (5, 100, -8)])
    assert ledger.blocks.end_ns.tolist() == [5, NOT_FREED]
    assert ledger.blocks.end_event.tolist() == [2, NOT_FREED]
    assert ledger.samples.allocated_bytes.tolist() == [8, 12, 4]
    assert ledger.warnings == ()


def test_a_missing_free_under_a_transport_operator_ends_with_the_transport() -> None:
    ledger = pair([(1, 100, 8), (9, 200, 4)], transport=[0, -1], transport_end=[6])
    assert ledger.blocks.end_ns.tolist() == [6, NOT_FREED]
    assert ledger.blocks.free_unreported.tolist() == [True, False]
    assert ledger.samples.t_ns.tolist() == [1, 6, 9]
    assert ledger.samples.allocated_bytes.tolist() == [8, 0, 4]
    assert ledger.samples.reported_bytes.tolist() == [8, 8, 12]
    assert ledger.samples.unreported_free_bytes.tolist() == [0, 8, 8]


def test_a_missing_free_ends_at_the_latest_when_its_address_is_allocated_again() -> None:
    ledger = pair([(1, 100, 8), (4, 100, 2)], transport=[0, -1], transport_end=[50])
    assert ledger.blocks.end_ns.tolist() == [4, NOT_FREED]
    # The free comes before the alloc of the same moment: 8, 0, 2 and never 10.
    assert ledger.samples.allocated_bytes.tolist() == [8, 0, 2]


def test_a_missing_free_ends_when_the_last_watched_tensor_died() -> None:
    ledger = pair([(1, 100, 8), (9, 200, 4)], drops=[(3, 100), (7, 100), (20, 999)])
    assert ledger.blocks.end_ns.tolist() == [7, NOT_FREED]


def test_a_block_that_a_tag_names_after_its_transport_is_alive() -> None:
    events = [(1, 100, 8), (2, 200, 4), (9, 300, 2), (12, 200, 1)]
    ledger = pair(events, transport=[0, 0, -1, -1], transport_end=[6], tags=[(7, 100), (5, 200), (11, 300)])
    # 100 is named at 7, 200 only while its transport ran.
    assert ledger.blocks.end_ns.tolist() == [NOT_FREED, 6, NOT_FREED, NOT_FREED]


def test_a_tag_keeps_a_block_no_longer_than_to_the_next_use_of_its_address() -> None:
    ledger = pair([(1, 100, 8), (9, 100, 2)], transport=[0, -1], transport_end=[6], tags=[(7, 100)])
    assert ledger.blocks.end_ns.tolist() == [9, NOT_FREED]


def test_a_reported_free_counts_more_than_a_dead_tensor() -> None:
    ledger = pair([(1, 100, 8), (9, 100, -8)], drops=[(3, 100)])
    assert ledger.blocks.end_ns.tolist() == [9]
    assert ledger.samples.unreported_free_bytes.tolist() == [0, 0]


def test_bytes_from_before_the_recording_are_a_block_of_their_own() -> None:
    ledger = pair([(5, 100, 8)], base=32)
    assert ledger.blocks.size_bytes.tolist() == [32, 8]
    assert ledger.samples.allocated_bytes.tolist() == [32, 40]
    assert ledger.samples.reported_bytes.tolist() == [32, 40]


def test_a_free_without_its_alloc_changes_nothing_and_is_said() -> None:
    ledger = pair([(1, 100, 8), (2, 300, -4)])
    assert ledger.samples.allocated_bytes.tolist() == [8, 8]
    assert ledger.warnings == ("1 frees of blocks that were allocated before the recording",)


def test_no_events_give_an_empty_ledger() -> None:
    ledger = pair([])
    assert len(ledger.blocks.address) == len(ledger.samples.t_ns) == 0


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], set[int]]:
    """A valid history in which some frees are not reported; the rows of allocs whose free is missing."""
    events: list[Event] = []
    live: dict[int, tuple[int, int]] = {}
    lost: set[int] = set()
    for t in range(1, draw(st.integers(0, 60)) + 1):
        if live and draw(st.booleans()):
            address = draw(st.sampled_from(sorted(live)))
            row, size = live.pop(address)
            if draw(st.booleans()):
                events.append((t, address, -size))
            else:
                lost.add(row)
        else:
            address = draw(st.integers(1, 12))
            if address not in live:
                size = draw(st.integers(1, 1 << 40))
                live[address] = (len(events), size)
                events.append((t, address, size))
    return events, lost


@given(histories())
def test_blocks_explain_every_sample(history: tuple[list[Event], set[int]]) -> None:
    events, _ = history
    ledger = pair(events)
    blocks, samples = ledger.blocks, ledger.samples
    for row in range(len(samples.t_ns)):
        live = (blocks.start_event <= row) & (blocks.end_event > row)
        assert blocks.size_bytes[live].sum() == samples.allocated_bytes[row]
    assert np.all(samples.allocated_bytes >= 0)
    assert np.all(np.diff(samples.t_ns) >= 0)
    total = samples.allocated_bytes + samples.unreported_free_bytes
    assert samples.reported_bytes is not None
    assert total.tolist() == samples.reported_bytes.tolist()


@given(histories())
def test_no_two_live_blocks_share_an_address(history: tuple[list[Event], set[int]]) -> None:
    blocks = pair(history[0]).blocks
    for address in np.unique(blocks.address):
        mine = np.flatnonzero(blocks.address == address)
        order = mine[np.argsort(blocks.start_ns[mine], kind="stable")]
        assert np.all(blocks.end_ns[order[:-1]] <= blocks.start_ns[order[1:]])


@given(histories())
def test_only_blocks_without_a_reported_free_are_called_so(history: tuple[list[Event], set[int]]) -> None:
    events, lost = history
    alloc_rows = [row for row, event in enumerate(events) if event[2] > 0]
    unreported = {alloc_rows[i] for i in np.flatnonzero(pair(events).blocks.free_unreported)}
    assert unreported <= lost


def test_shared_memory_reported_with_a_total_of_zero_is_added_to_the_totals() -> None:
    ledger = pair_cpu_events(
        t_ns=np.array([1, 2, 3, 4, 5]),
        address=np.array([100, 900, 200, 900, 100], np.uint64),
        delta_bytes=np.array([8, 2048, 4, -2048, -8]),
        reported_bytes=np.array([8, 0, 12, 0, 4]),
        operator=np.zeros(5, np.int32),
        transport=np.full(5, -1),
        transport_end_ns=np.zeros(0, np.int64),
    )
    assert ledger.samples.allocated_bytes.tolist() == [8, 2056, 2060, 12, 4]
    assert ledger.samples.reported_bytes is not None
    assert ledger.samples.reported_bytes.tolist() == [8, 2056, 2060, 12, 4]


def test_a_free_down_to_zero_is_the_allocators_own() -> None:
    ledger = pair([(1, 100, 8), (2, 100, -8), (3, 200, 4)])
    assert ledger.samples.reported_bytes is not None
    assert ledger.samples.reported_bytes.tolist() == [8, 0, 4]
