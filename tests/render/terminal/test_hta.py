"""Both tools' numbers side by side, and a sentence where they differ."""

from render.terminal.samples import printed

from fsdp_profile.analysis.hta.comparison import Differences, Ours
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.analysis.time.breakdown import NO_LAUNCHES, TimeBreakdown
from fsdp_profile.render.terminal.hta import hta_report


def ours(*, compute_ns=500_000, host_bound_ns=None, dropped=0, misnamed=0) -> Ours:
    return Ours(
        breakdown=TimeBreakdown(
            span_ns=1_000_000,
            compute_ns=compute_ns,
            communication_ns=400_000,
            exposed_ns=300_000,
            memory_ns=10_000,
            idle_ns=700_000 - compute_ns - 10_000,
            host_bound_ns=host_bound_ns,
            host_bound_not_recorded=NO_LAUNCHES if host_bound_ns is None else None,
        ),
        differences=Differences(
            num_works=2_000, num_dropped=dropped, num_collectives=17, num_taken_for_compute=misnamed
        ),
    )


def tables(*compute: float) -> list[HtaTable]:
    return [
        HtaTable(
            name="temporal breakdown",
            columns=("rank", "idle_time_pctg", "compute_time_pctg"),
            rows=tuple((rank, 19.0, percent) for rank, percent in enumerate(compute)),
            error=None,
        ),
        HtaTable(name="idle time", columns=(), rows=(), error="ValueError: No objects to concatenate"),
    ]


def lines_of(found, *, width):
    return [line.rstrip() for line in printed(found, width=width).splitlines()]


def test_both_are_side_by_side_and_agree():
    assert lines_of(hta_report(tables(50.0), {0: ours(host_bound_ns=90_000)}), width=80) == [
        "HTA and ours  overlap of communication with compute; idle and compute time as",
        "shares of the active span",
        "rank  overlap HTA  overlap ours  idle HTA  idle ours  compute HTA  compute ours",
        "───────────────────────────────────────────────────────────────────────────────",
        "   0            -       25.00 %   19.00 %    19.00 %      50.00 %       50.00 %",
        "HTA and ours are the same to two decimals wherever both have a number",
        "",
        "Ours  compute, exposed, copies and idle add up to the span",
        "rank     span   compute   exposed   copies      idle  overlapped  host-bound",
        "────────────────────────────────────────────────────────────────────────────",
        "   0  1.00 ms  500.0 us  300.0 us  10.0 us  190.0 us    100.0 us     90.0 us",
        "compute, exposed, copies and idle add up to the span. exposed: communication not",
        "hidden behind compute; overlapped: communication hidden behind compute; copies:",
        "neither compute nor communication runs; host-bound: idle while nothing that was",
        "launched waits to start.",
        "",
        "HTA: temporal breakdown",
        "rank  idle time pctg  compute time pctg",
        "───────────────────────────────────────",
        "   0           19.00              50.00",
        "",
        "HTA: idle time",
        "- none: ValueError: No objects to concatenate",
    ]


def test_a_difference_has_its_reasons_by_rank():
    found = {0: ours(), 1: ours(dropped=968), 2: ours(misnamed=5, dropped=1), 3: ours()}
    text = printed(hta_report(tables(50.0, 49.0, 51.0, 51.0), found), width=200)
    assert "Rank 0:" not in text
    assert (
        "- Rank 1: HTA drops 968 of 2,000 kernels and copies, which were launched before the recording began "
        "and ran in it." in text
    )
    assert "- Rank 2: HTA drops 1 of 2,000 kernels and copies," in text
    assert "- Rank 2: HTA counts 5 of 17 communication kernels as compute, because of their names." in text
    assert "- Rank 3: the numbers differ for an unknown reason." in text
    assert "are the same" not in text


def test_ranks_of_one_side_only_are_shown():
    text = printed(hta_report(tables(50.0, 50.0), {0: ours(), 7: ours()}), width=100)
    assert "   1            -             -   19.00 %          -      50.00 %             -" in text
    assert "   7            -       25.00 %         -    19.00 %            -       50.00 %" in text


def test_without_kernels_ours_is_not_recorded():
    nothing = Ours(breakdown=None, differences=ours().differences)
    text = printed(hta_report(tables(50.0), {0: nothing}), width=100)
    assert "not recorded: no kernels in the run" in text


def test_a_thousand_ranks_are_twenty_and_a_count():
    found = {rank: ours() for rank in range(1_000)}
    text = printed(hta_report(tables(*[50.0] * 1_000), found), width=100)
    assert text.count("and 980 more rows") == 3
    assert len(text.splitlines()) < 100
