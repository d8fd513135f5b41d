"""The sampler of the device and of host memory: it samples, and a script does not see it."""

import threading
import time

from fsdp_profile.capture.sources.device import DeviceSampler


def test_a_script_that_joins_every_thread_it_sees_does_not_wait_for_the_sampler() -> None:
    before = threading.enumerate()
    sampler = DeviceSampler(interval_s=0.01)
    sampler.start()
    until = time.monotonic() + 20
    taken: list[int] = []
    while len(taken) < 3 and time.monotonic() < until:
        taken += sampler.drain()["host_rss_bytes"]
        assert threading.enumerate() == before
    sampler.stop()
    assert len(taken) >= 3 and min(taken) > 0
    sampler.drain()
    time.sleep(0.05)
    assert sampler.drain()["t_ns"] == []
