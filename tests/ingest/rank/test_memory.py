"""Blocks that were there before a late recording: there from its begin on, and gone when they are."""

import numpy as np

from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.rank.memory import with_preexisting
from fsdp_profile.ingest.rank.pairing import pair_cpu_events

HIGH = 2**63 + 8  # an address is all 64 bits


def held(t_ns: int, **blocks: int) -> tuple[int, dict[str, np.ndarray]]:
    address = np.array([int(name[1:]) for name in blocks], np.uint64)
    return t_ns, {"address": address, "size_bytes": np.array(list(blocks.values()), np.int64)}


def events(*rows: tuple[int, int, int]) -> dict[str, np.ndarray]:
    delta = np.array([row[2] for row in rows], np.int64)
    return {
        "t_ns": np.array([row[0] for row in rows], np.int64),
        "address": np.array([row[1] for row in rows], np.uint64),
        "delta_bytes": delta,
        "reported_bytes": delta.cumsum(),
        "operator": np.full(len(rows), 7, np.int32),
        "transport": np.full(len(rows), -1, np.int64),
    }


def test_what_tensors_held_before_is_there_until_it_is_gone_or_its_address_is_used_again() -> None:
    """One stays, one is gone at the first forward (20), and the address of one is allocated again (15)."""
    before = held(10, **{"_100": 32, f"_{HIGH}": 8, "_300": 4})
    recorded = with_preexisting(
        events((12, 500, 16), (15, 300, 2), (30, 500, -16)), [before, held(20, _100=32, _300=2)]
    )
    ledger = pair_cpu_events(**recorded, transport_end_ns=np.zeros(0, np.int64))
    blocks = ledger.blocks
    found = zip(blocks.address.tolist(), blocks.size_bytes.tolist(), blocks.start_ns, blocks.end_ns, strict=True)
    assert sorted(found) == [
        (100, 32, 10, NOT_FREED), (300, 2, 15, NOT_FREED), (300, 4, 10, 15), (500, 16, 12, 30), (HIGH, 8, 10, 20),
    ]  # fmt: skip
    samples = ledger.samples
    assert samples.allocated_bytes.tolist() == [32, 40, 44, 60, 56, 58, 50, 34]
    assert (samples.allocated_bytes + samples.unreported_free_bytes == samples.reported_bytes).all()
    assert ledger.warnings == ()


def test_a_recording_from_the_first_line_on_stays_as_it_is() -> None:
    recorded = events((1, 100, 8))
    assert with_preexisting(recorded, []) is recorded


def test_nothing_was_there_before() -> None:
    recorded = with_preexisting(events((1, 100, 8)), [held(0), held(5)])
    assert {name: values.tolist() for name, values in recorded.items()} == {
        name: values.tolist() for name, values in events((1, 100, 8)).items()
    }
