"""The sentence about the ranks' clocks, which the terminal, the reports and the dashboard share."""

from fsdp_profile.analysis.collectives.clocks import Alignment
from fsdp_profile.present.clocks import clocks

MS = 1_000_000


def test_a_negative_offset_is_behind_and_a_positive_one_is_ahead():
    found = Alignment(offset_ns={0: 0, 1: 500 * MS, 2: -3_200_000}, residual_ns=3_000, reason="")
    assert clocks(found).text == (
        "Clocks against rank 0: rank 1 is 500.00 ms ahead, rank 2 is 3.20 ms behind; with these offsets removed, ends "
        "of the same collective agree within 3.0 us (median)."
    )


def test_clocks_without_an_offset_are_the_same():
    found = Alignment(offset_ns={0: 0, 1: 0}, residual_ns=3_000, reason="")
    assert clocks(found).text == (
        "The clocks of the ranks are the same; ends of the same collective agree within 3.0 us (median)."
    )


def test_clocks_that_were_not_aligned_say_why():
    refused = Alignment(offset_ns=None, residual_ns=5_000, reason="the clocks drift")
    assert clocks(refused).text == (
        "The clocks of the ranks are not aligned: the clocks drift (ends differ by 5.0 us, median)."
    )


def test_of_many_clocks_eight_are_named_and_the_others_counted():
    found = Alignment(offset_ns={rank: rank * MS for rank in range(11)}, residual_ns=0, reason="")
    assert "rank 8 is 8.00 ms ahead and 2 more differ; with these offsets removed" in clocks(found).text
