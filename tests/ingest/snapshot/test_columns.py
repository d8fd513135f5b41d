"""Details of the snapshot format: sizes, addresses, pools, devices, stacks, times, and what does not fit."""

import copy
import pickle

import pytest
from ingest.snapshot.snapshot_factory import block, event, only_history, segment, snapshot

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.snapshot.reader import history_from_snapshot, read_snapshot

MIB = 1 << 20
NO_TIMELINE = "no timeline: history was not recorded"


def mib(table, name):
    """A column of byte counts that are whole MiB, in MiB."""
    values = table[name].to_pylist()
    assert all(value % MIB == 0 for value in values)
    return [value // MIB for value in values]


def test_sizes_of_events_are_rounded_as_the_allocator_does():
    history = only_history(snapshot(event("alloc", 0, 4), event("alloc", 512, 16640), event("free_completed", 0, 4)))
    assert history.blocks["requested_bytes"].to_pylist() == [4, 16640]
    assert history.blocks["size_bytes"].to_pylist() == [512, 16896]
    assert history.events["size_bytes"].to_pylist() == [4, 16640, 4]


def test_block_live_at_the_end_has_the_size_that_the_snapshot_tells():
    held = segment(block(address=0, size=20 * MIB, requested_size=19 * MIB), total_size=20 * MIB)
    history = only_history(snapshot(event("alloc", 0, 19 * MIB), segments=[held]))
    assert mib(history.blocks, "size_bytes") == [20]
    assert mib(history.blocks, "requested_bytes") == [19]
    assert mib(history.samples, "allocated_bytes") == [20]


def test_roundup_power2_divisions_of_the_settings():
    asked = [300, 3 * MIB // 2, 5 * MIB // 4 + 1, 1200 * 1024, 8 * MIB, 9 * MIB]
    taken = snapshot(*(event("alloc", i << 30, size) for i, size in enumerate(asked)))
    divisions = {str(1 << i): 4 if i < 3 else 1 for i in range(16)}  # four steps per power of two, below 8 MiB
    taken["allocator_settings"] = {"roundup_power2_divisions": divisions}
    sizes = only_history(taken).blocks["size_bytes"].to_pylist()
    assert sizes == [512, 3 * MIB // 2, 3 * MIB // 2, 5 * MIB // 4, 8 * MIB, 9 * MIB]


def test_negative_addresses_of_events_meet_the_unsigned_ones_of_segments():
    address = (1 << 64) - (1 << 30)
    taken = snapshot(event("alloc", address - (1 << 64)), segments=[segment(block(address=address), address=address)])
    history = only_history(taken)
    assert history.blocks["address"].to_pylist() == [address]
    assert not history.blocks["preexisting"].to_pylist()[0]


def test_blocks_without_address_follow_one_another():
    parts = [block(size=512), block(size=1024, state="inactive"), block(size=2048)]
    for part in parts:
        del part["address"]
    taken = [segment(*parts, address=4096), segment(*copy.deepcopy(parts), address=1 << 30)]
    addresses = only_history(taken).blocks["address"].to_pylist()
    assert addresses == [4096, 4096 + 1536, 1 << 30, (1 << 30) + 1536]


def test_pool_comes_from_the_segment_unless_it_is_a_later_one():
    taken = snapshot(
        event("segment_alloc", 0, MIB),
        event("alloc", 0),
        event("free_requested", 0),
        event("free_completed", 0),
        event("segment_free", 0, MIB),
        event("segment_alloc", 0, MIB),
        event("alloc", 0),
        segments=[segment(block(), segment_pool_id=(0, 7), stream=3)],
    )
    assert only_history(taken).blocks["pool_id"].to_pylist() == [None, "0,7"]


def test_devices_are_kept_apart():
    taken = {
        "segments": [segment(block(), device=2)],
        "device_traces": [[event("alloc", 0)], [], []],
        "external_annotations": [
            {"name": "FSDP::all_gather (layers.0)", "stage": "START", "device": 0, "time_us": 5},
            {"name": "FSDP::all_gather (layers.0)", "stage": "END", "device": 2, "time_us": 6},
        ],
    }
    first, second = history_from_snapshot(taken)
    assert (first.device, first.events.num_rows, first.segments.num_rows) == (0, 1, 0)
    assert (second.device, second.events.num_rows, second.segments.num_rows) == (2, 0, 1)
    assert first.annotations.to_pylist() == [{"t_ns": 5000, "name": "FSDP::all_gather (layers.0)", "stage": "START"}]
    assert second.annotations["t_ns"].to_pylist() == [6000]
    assert second.warnings == (NO_TIMELINE,)


def test_stack_of_cpp_and_python_frames():
    frames = [
        {"name": "c10::cuda::CUDACachingAllocator::malloc(void**)", "filename": "??", "line": 0},
        {"name": "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "filename": "??", "line": 0},
        {"name": "linear", "filename": "/lib/site-packages/torch/nn/functional.py", "line": 9},
        {"name": "forward", "filename": "/srv/model.py", "line": 77},
    ]
    history = only_history(snapshot(event("alloc", 0, frames=frames), event("alloc", 512, frames=frames[2:])))
    assert history.stacks.to_pylist() == [
        {"operator": "aten::mm", "location": "/srv/model.py:77"},
        {"operator": "linear", "location": "/srv/model.py:77"},
    ]
    assert history.blocks["operator"].to_pylist() == ["aten::mm", "linear"]
    assert history.events["stack"].to_pylist() == [0, 1]


def test_time_missing_or_going_back():
    taken = snapshot(
        event("alloc", 0, us=10), event("alloc", 512, us=8), event("alloc", 1024, us=12), event("alloc", 2048)
    )
    del taken["device_traces"][0][3]["time_us"]
    history = only_history(taken)
    assert history.events["t_ns"].to_pylist() == [10_000, 10_000, 12_000, 12_000]
    assert "events without time: 1; each takes that of the one before" in history.warnings
    assert "events back in time: 1; each takes the latest time before it" in history.warnings


def test_text_that_is_not_text_does_no_harm():
    taken = snapshot(
        event("\ud800", frames=[{"name": "\udfff", "filename": "/a\ud800.py", "line": 1}]),
        segments=[segment(segment_type="\ud800")],
    )
    taken["external_annotations"] = [{"name": "\ud800", "stage": "START", "device": 0, "time_us": 1}]
    history = only_history(taken)
    assert history.events["action"].to_pylist() == ["?"]
    assert history.annotations["name"].to_pylist() == ["?"]


@pytest.mark.parametrize(
    "damaged",
    [
        {"segments": {}},
        {"segments": [3]},
        {"segments": [{"unlike": "a segment"}]},
        {"segments": [segment(block(size=-512))]},
        {"segments": [segment(block(size=1 << 60))]},
        {"segments": [segment(block(size="big"))]},
        {"segments": [segment(address=1 << 64)]},
        {"segments": [segment(device="cuda")]},
        {"segments": [segment() | {"blocks": 3}]},
        {"segments": [segment(segment_pool_id=3)]},
        {"device_traces": 3},
        {"device_traces": [3]},
        {"device_traces": [{"action": "alloc"}]},
        {"device_traces": [[3]]},
        {"device_traces": [[event(["alloc"])]]},
        {"device_traces": [[event("alloc", size=-1)]]},
        {"device_traces": [[event("alloc", size=None)]]},
        {"device_traces": [[event("alloc", size=[1, 2])]]},
        {"device_traces": [[event("alloc", addr="0x7f")]]},
        {"device_traces": [[event("alloc", addr=1 << 64)]]},
        {"device_traces": [[event("alloc", us=-1)]]},
        {"device_traces": [[event("alloc", us=1 << 60)]]},
        {"device_traces": [[event("alloc", frames=[3])]]},
        {"device_traces": [[event("alloc", frames=3)]]},
        {"device_traces": [[event("alloc")]], "external_annotations": [3]},
        {"device_traces": [[event("alloc")]], "allocator_settings": {"roundup_power2_divisions": {"1": "x"}}},
        {},
        [3],
        3,
        None,
    ],
)
def test_what_does_not_fit_is_one_line(damaged):
    with pytest.raises(InputError) as caught:
        history_from_snapshot(damaged)
    assert str(caught.value).startswith("not an allocator snapshot (")
    assert "\n" not in str(caught.value)


def test_file_with_nothing_allocated(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[], []]}))
    with pytest.raises(InputError, match="no device memory in it"):
        read_snapshot(path)
