"""Sentences about collective time and traffic."""

from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.present.collectives import exposed_time, traffic

MS = 1_000_000


def test_exposed_time_is_said_per_step_where_the_steps_are_counted():
    found = CollectiveSummary(total_ns=8 * MS, exposed_ns=2 * MS, by_kind={})
    assert exposed_time(found, rank=1, num_steps=4).text == (
        "500.0 us of 2.00 ms of collective time per step was not hidden behind compute (25.0 %): 2.00 ms of 8.00 ms "
        "over 4 steps of rank 1. Calls that run at the same time count once."
    )
    assert exposed_time(found, rank=1).text == (
        "2.00 ms of 8.00 ms of collective time was not hidden behind compute (25.0 %), over the training steps of "
        "rank 1. Calls that run at the same time count once."
    )


def test_traffic_is_an_estimate_and_counts_calls_of_unknown_size():
    found = StepTraffic(size_bytes=2048, wire_bytes=1024, num_steps=1, num_unknown=3)
    assert traffic(found, rank=3).text == (
        "Rank 3 sends 1.00 KiB per step if each collective runs as a ring (estimate); the whole arrays hold 2.00 KiB "
        "(1 complete step). 3 calls of unknown size are not counted."
    )
