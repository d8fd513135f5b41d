"""Every case file has one right answer; snapshots recorded by others end as their segments do."""

import gzip
import pickle

import numpy as np
import pytest
from ingest.snapshot.snapshot_factory import only_history

from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import NOT_FREED
from fsdp_profile.ingest.snapshot.reader import OutOfMemory, Totals, read_snapshot
from fsdp_profile.ingest.snapshot.safe_pickle import load_plain

MIB = 1 << 20
T0_NS = 1_790_857_027_000_000_000
NO_TIMELINE = "no timeline: history was not recorded"


def mib(table, name):
    """A column of byte counts that are whole MiB, in MiB."""
    values = table[name].to_pylist()
    assert all(value % MIB == 0 for value in values)
    return [value // MIB for value in values]


def totals(allocated, active, reserved):
    return Totals(allocated_bytes=allocated * MIB, active_bytes=active * MIB, reserved_bytes=reserved * MIB)


def assert_is_control(history):
    """Peak 6 MiB at the all-gather, end 2 MiB, segment 8 MiB."""
    assert mib(history.samples, "allocated_bytes") == [0, 2, 6, 2, 2]
    assert mib(history.samples, "active_bytes") == [0, 2, 6, 6, 2]
    assert mib(history.samples, "reserved_bytes") == [8, 8, 8, 8, 8]
    assert history.start == totals(0, 0, 0)
    assert history.end == totals(2, 2, 8)
    times = [T0_NS + us * 1000 for us in (0, 1, 5, 9, 9)]
    assert history.samples["t_ns"].to_pylist() == history.events["t_ns"].to_pylist() == times
    assert history.blocks.to_pylist() == [
        {
            "address": 139637976727552,
            "size_bytes": 2 * MIB,
            "requested_bytes": 2 * MIB,
            "start_ns": T0_NS + 1000,
            "start_event": 1,
            "end_requested_ns": NOT_FREED,
            "end_requested_event": NOT_FREED,
            "end_ns": NOT_FREED,
            "end_event": NOT_FREED,
            "stream": 0,
            "pool_id": "0,0",
            "preexisting": False,
            "free_unreported": False,
            "operator": "fully_shard",
            "stack": 1,
        },
        {
            "address": 139637978824704,
            "size_bytes": 4 * MIB,
            "requested_bytes": 4 * MIB,
            "start_ns": T0_NS + 5000,
            "start_event": 2,
            "end_requested_ns": T0_NS + 9000,
            "end_requested_event": 3,
            "end_ns": T0_NS + 9000,
            "end_event": 4,
            "stream": 0,
            "pool_id": "0,0",
            "preexisting": False,
            "free_unreported": False,
            "operator": "all_gather_copy_in",
            "stack": 2,
        },
    ]
    assert history.stacks.to_pylist()[2] == {
        "operator": "all_gather_copy_in",
        "location": "/srv/toy/all_gather_copy_in.py:1",
    }
    assert history.warnings == ()


@pytest.mark.parametrize("name", ["50-snap-good.pickle", "56-snap-protocol5.pickle"])
def test_control_and_protocol_5(snapshot_cases, name):
    assert_is_control(only_history(snapshot_cases / name))


def test_protocol_2(snapshot_cases, tmp_path):
    path = tmp_path / "57-snap-protocol2.pickle"
    path.write_bytes(pickle.dumps(load_plain(snapshot_cases / "50-snap-good.pickle"), protocol=2))
    assert_is_control(only_history(path))


def test_gzipped_under_the_plain_name(snapshot_cases, tmp_path):
    path = tmp_path / "64-snap-gzipped.pickle"
    path.write_bytes(gzip.compress((snapshot_cases / "50-snap-good.pickle").read_bytes()))
    assert_is_control(only_history(path))


def test_untrusted_file_is_loaded_in_a_child_first(snapshot_cases):
    histories = read_snapshot(snapshot_cases / "50-snap-good.pickle", limit_bytes=1 << 30)
    assert_is_control(histories[0])


@pytest.mark.parametrize("name", ["51-snap-no-device-traces.pickle", "52-snap-bare-segment-list.pickle"])
def test_without_history_the_end_state_is_shown(snapshot_cases, name):
    history = only_history(snapshot_cases / name)
    assert history.end == history.start == totals(2, 2, 8)
    assert history.end.reserved_unused_bytes == 6 * MIB
    assert history.warnings == (NO_TIMELINE,)
    assert history.events.num_rows == history.samples.num_rows == 0
    assert mib(history.segments, "total_bytes") == [8]
    assert mib(history.segments, "allocated_bytes") == [2]
    assert mib(history.blocks, "size_bytes") == [2]
    assert history.blocks["end_ns"].to_pylist() == [NOT_FREED]


def test_free_without_alloc_existed_from_the_start(snapshot_cases):
    history = only_history(snapshot_cases / "54-snap-free-without-alloc.pickle")
    assert history.start == totals(4, 4, 8)
    assert mib(history.samples, "allocated_bytes") == mib(history.samples, "active_bytes") == [2, 3]
    assert history.end == totals(3, 3, 8)
    assert history.blocks["preexisting"].to_pylist() == [True, True, False]
    assert history.blocks["start_ns"].to_pylist() == [T0_NS + 1000, T0_NS + 1000, T0_NS + 2000]
    assert mib(history.blocks, "size_bytes") == [2, 2, 1]
    assert history.warnings == (
        "frees completed, none requested on record: 1; those blocks count as allocated until the free is completed",
        "blocks from before the recording: 2 (4,194,304 bytes), of them with a free without alloc: 1",
    )


def test_addresses_above_int64_are_exact(snapshot_cases):
    history = only_history(snapshot_cases / "58-snap-address-above-int64.pickle")
    assert history.events["address"].to_pylist()[1] == 18446603336221196800
    assert history.segments["address"].to_pylist() == [18446603336221196288]
    # the two addresses differ by 512, which a float64 would lose: they are two blocks
    assert history.blocks["address"].to_pylist()[:2] == [18446603336221196288, 18446603336221196800]
    assert history.end == totals(2, 2, 8)


def test_expandable_segments_map_and_unmap(snapshot_cases):
    history = only_history(snapshot_cases / "59-snap-expandable-segment-map.pickle")
    assert mib(history.samples, "reserved_bytes") == [2, 4, 4, 4, 4, 2]
    assert mib(history.samples, "allocated_bytes") == [0, 0, 3, 0, 0, 0]
    assert history.start == totals(0, 0, 0)
    assert history.segments["is_expandable"].to_pylist() == [True]
    assert history.warnings == ()


def test_oom_is_kept_with_what_was_asked_free_and_allocated(snapshot_cases):
    history = only_history(snapshot_cases / "61-snap-oom-entry.pickle")
    assert history.ooms == (
        OutOfMemory(
            t_ns=T0_NS + 9000,
            event=2,
            asked_bytes=64 * MIB,
            device_free_bytes=3 * MIB,
            stream=0,
            totals=totals(2, 2, 8),
        ),
    )
    assert mib(history.samples, "allocated_bytes") == [0, 2, 2, 2]
    assert history.warnings == ()


def test_unknown_actions_are_counted_and_pending_frees_shown_apart(snapshot_cases):
    history = only_history(snapshot_cases / "63-snap-unknown-action-and-keys.pickle")
    assert history.end == totals(2, 3, 8)
    assert history.end.pending_free_bytes == MIB
    assert mib(history.segments, "allocated_bytes") == [2]
    assert mib(history.segments, "pending_free_bytes") == [1]
    assert history.events["action"].to_pylist() == ["alloc", "workspace_snapshot_toy"]
    assert "events with unknown actions, ignored: 1 ('workspace_snapshot_toy' 1)" in history.warnings


def test_truncated_file_is_one_line(snapshot_cases):
    path = snapshot_cases / "65-snap-truncated.pickle"
    with pytest.raises(InputError) as caught:
        read_snapshot(path)
    assert str(caught.value) == f"{path}: truncated, the file ends too early; record it again, or copy it again"


def test_streams_pools_and_what_a_stream_still_holds(snapshot_cases):
    history = only_history(snapshot_cases / "66-snap-private-pool-and-streams.pickle")
    keys = ("stream", "pool_id", "end_requested_ns", "end_ns")
    assert history.blocks.select(keys).to_pylist() == [
        dict(zip(keys, (94001, "0,0", T0_NS + 2000, T0_NS + 40_000), strict=True)),
        dict(zip(keys, (0, "0,1", NOT_FREED, NOT_FREED), strict=True)),
    ]
    allocated, active = (np.array(mib(history.samples, f"{name}_bytes")) for name in ("allocated", "active"))
    times = ((history.samples["t_ns"].to_numpy() - T0_NS) // 1000).tolist()
    assert dict(zip(times, (active - allocated).tolist(), strict=True)) == {0: 0, 1: 0, 2: 1, 3: 1, 40: 0}


def test_pickle_with_a_call_is_refused_and_not_run(snapshot_cases, capfd):
    path = snapshot_cases / "67-snap-pickle-with-call.pickle"
    for limit_bytes in (None, 1 << 30):
        with pytest.raises(InputError) as caught:
            read_snapshot(path, limit_bytes=limit_bytes)
        assert str(caught.value).startswith(f"{path}: refused: it asks for 'posix.system'")
    assert "FSDP_PROFILE_RAN_CODE" not in "".join([str(caught.value), *capfd.readouterr()])


def test_other_pickle_is_not_a_snapshot(snapshot_cases):
    path = snapshot_cases / "68-snap-not-a-snapshot.pickle"
    with pytest.raises(InputError) as caught:
        read_snapshot(path)
    assert str(caught.value).startswith(f"{path}: not an allocator snapshot (it has no 'segments'")


@pytest.mark.parametrize("name", ["mini_snapshot.pickle", "mosaic_output.pickle"])
def test_recorded_snapshot_ends_as_its_segments_do(traces, name):
    path = traces / "snapshots" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    loaded = load_plain(path)
    in_use = sum(b["size"] for s in loaded["segments"] for b in s["blocks"] if b["state"].startswith("active_"))
    history = only_history(path)
    assert history.end.active_bytes == history.samples["active_bytes"].to_pylist()[-1] == in_use
    assert history.end.reserved_bytes == sum(s["total_size"] for s in loaded["segments"])
    assert history.events.num_rows == len(loaded["device_traces"][0])
    assert min(history.samples["active_bytes"].to_pylist()) >= 0
