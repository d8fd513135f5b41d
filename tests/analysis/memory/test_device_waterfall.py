"""Allocated, active, reserved, used: what each holds beyond the one before it."""

from builder import RunBuilder

from fsdp_profile.analysis.memory.device_waterfall import StreamPool, Waterfall, pools_at, waterfall
from fsdp_profile.core.schema import NOT_FREED


def reserved(run: RunBuilder, address: int, size: int, *, stream: int = 0, pool: str = "0,0", grows: bool = False):
    run.row("segments", address=address, size_bytes=size, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=stream, pool=pool, is_expandable=grows)  # fmt: skip


def pending(run: RunBuilder, address: int, size: int, *, stream: int = 0):
    run.row("pending_frees", address=address, size_bytes=size, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=stream, pool="0,0")  # fmt: skip


def device_run() -> RunBuilder:
    """A block of 10 bytes at 4096, as the builder places it, in a segment of 100; 8 of 50 pending on stream 7."""
    run = RunBuilder().set(device_type="cuda").alloc(at=5, size=10)
    reserved(run, 4000, 100 + 96)
    reserved(run, 9000, 50, stream=7)
    pending(run, 9010, 8, stream=7)
    return run.totals(reserved=246, active=18)


def test_each_level_is_told_apart_and_the_pools_add_up():
    run = device_run().device_sample(4, device_used_bytes=900, process_used_bytes=400, device_total_bytes=1000).build()
    found = waterfall(run, rank=0)
    assert found == Waterfall(
        rank=0, t_ns=5, event=0, allocated_bytes=10, pending_free_bytes=8, reserved_unused_bytes=228,
        reserved_bytes=246, largest_free_bytes=96, pools=found.pools, device_used_bytes=900, process_used_bytes=400,
        device_total_bytes=1000,
    )  # fmt: skip
    assert found.pools == (
        StreamPool(stream=0, pool="0,0", reserved_bytes=196, active_bytes=10, pending_bytes=0, unused_bytes=186,
                   largest_free_bytes=96),
        StreamPool(stream=7, pool="0,0", reserved_bytes=50, active_bytes=8, pending_bytes=8, unused_bytes=42,
                   largest_free_bytes=32),
    )  # fmt: skip
    assert (found.outside_bytes, found.outside_this_process_bytes, found.other_processes_bytes) == (654, 154, 500)


def test_neighbouring_pieces_are_one_range_only_when_the_segment_can_grow():
    for grows, largest in ((True, 100), (False, 60)):
        run = RunBuilder().alloc(at=0, size=1)
        reserved(run, 10_000, 60, grows=grows)
        reserved(run, 10_060, 40, grows=grows)
        [pool] = pools_at(run.build(), rank=0, event=0)
        assert (pool.reserved_bytes, pool.largest_free_bytes) == (100, largest)


def test_without_nvml_nothing_is_said_about_the_device():
    found = waterfall(device_run().build(), rank=0)
    assert (found.device_used_bytes, found.outside_bytes, found.other_processes_bytes) == (None, None, None)


def test_a_sample_far_from_the_moment_says_nothing_about_it():
    run = device_run().device_sample(5 + 2 * 10**9, device_used_bytes=900, device_total_bytes=1000).build()
    found = waterfall(run, rank=0)
    assert (found.device_used_bytes, found.device_total_bytes) == (None, 1000)


def test_nvml_alone_is_the_highest_sample():
    run = RunBuilder().alloc(at=5, size=10)
    run.device_sample(1, device_used_bytes=100).device_sample(2, device_used_bytes=300, process_used_bytes=200)
    found = waterfall(run.build(), rank=0)
    assert (found.event, found.t_ns, found.device_used_bytes, found.reserved_bytes) == (None, 2, 300, None)
    assert (found.other_processes_bytes, found.outside_bytes, found.pools) == (100, None, ())


def test_more_active_than_reserved_is_not_a_negative_rest():
    found = waterfall(RunBuilder().alloc(at=5, size=10).totals(reserved=4, active=12).build(), rank=0)
    assert (found.reserved_bytes, found.pending_free_bytes, found.reserved_unused_bytes) == (4, 2, None)


def test_a_cpu_run_has_none():
    assert waterfall(RunBuilder().alloc(at=5, size=10).device_sample(1, host_rss_bytes=9).build(), rank=0) is None
