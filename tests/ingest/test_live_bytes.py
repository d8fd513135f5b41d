"""The ledger without a dense array is the dense one, for any blocks and any events."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest import live_bytes as module
from fsdp_profile.ingest.live_bytes import live_bytes

NUM_EVENTS = 50

blocks_of = st.lists(
    st.tuples(
        st.integers(0, NUM_EVENTS),
        st.integers(0, NUM_EVENTS) | st.just(None),
        st.integers(0, 1 << 40),
        st.sampled_from(CATEGORIES),
    ).filter(lambda block: block[1] is None or block[1] >= block[0]),
    max_size=60,
)


def table(blocks):
    return pa.table(
        {
            "start_event": np.array([b[0] for b in blocks], np.int64),
            "end_event": np.array([NOT_FREED if b[1] is None else b[1] for b in blocks], np.int64),
            "size_bytes": np.array([b[2] for b in blocks], np.int64),
            "category": pa.array([str(b[3]) for b in blocks], pa.string()).dictionary_encode(),
        }
    )


def dense(blocks):
    """Every category at every event, added up block by block."""
    found = np.zeros((len(CATEGORIES), NUM_EVENTS), np.int64)
    for start, end, size, category in blocks:
        found[CATEGORIES.index(category), start : NUM_EVENTS if end is None else end] += size
    return found


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", 8)
        yield


@given(blocks_of, st.lists(st.integers(0, NUM_EVENTS - 1), max_size=20))
def test_any_events_have_what_the_dense_ledger_has(blocks, events):
    whole, found = dense(blocks), live_bytes(table(blocks), NUM_EVENTS)
    assert found.at(np.array(events, np.int64)).tolist() == whole[:, events].tolist()


@given(blocks_of)
def test_the_pieces_make_the_whole_and_so_do_their_totals(blocks):
    whole, found = dense(blocks), live_bytes(table(blocks), NUM_EVENTS)
    firsts, pieces = zip(*found.chunks(), strict=True)
    assert list(firsts) == list(range(0, NUM_EVENTS, 8))
    assert np.concatenate(pieces, axis=1).tolist() == whole.tolist()
    assert np.concatenate([total for _, total in found.totals()]).tolist() == whole.sum(axis=0).tolist()


def test_a_category_of_a_newer_release_is_unknown():
    blocks = table([(0, None, 5, Category.ACTIVATION)])
    newer = blocks.set_column(3, "category", pa.array(["NEWER"]).dictionary_encode())
    assert live_bytes(newer, 1).at(np.array([0]))[CATEGORIES.index(Category.UNKNOWN)].tolist() == [5]


@pytest.mark.parametrize("block", [(51, None), (-1, None), (0, -1)])
def test_a_block_outside_of_the_events_is_refused(block):
    with pytest.raises(IndexError, match="a block lies outside of the 50 events"):
        live_bytes(table([(*block, 5, Category.ACTIVATION)]), NUM_EVENTS)


def test_no_events_have_no_ledger():
    found = live_bytes(table([]), 0)
    assert found.at(np.zeros(0, np.int64)).shape == (len(CATEGORIES), 0)
    assert list(found.chunks()) == []
