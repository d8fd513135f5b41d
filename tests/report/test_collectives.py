from report.samples import printed

from fsdp_profile.analysis.collectives import CollectiveSummary, KindTotal
from fsdp_profile.report.collectives import collectives_report


def test_kinds_come_longest_first_and_the_exposed_share_is_of_the_whole():
    found = CollectiveSummary(
        total_ns=4_000_000,
        exposed_ns=1_000_000,
        by_kind={
            "ALL_GATHER": KindTotal(count=1_200, size_bytes=None, total_ns=1_000_000),
            "REDUCE_SCATTER": KindTotal(count=3, size_bytes=2048, total_ns=4_000_000),
        },
    )
    assert [line.rstrip() for line in printed(collectives_report(found, rank=1), width=80).splitlines()] == [
        "Collectives  rank 1, over the training steps",
        "kind            calls         bytes     time",
        "────────────────────────────────────────────",
        "REDUCE_SCATTER      3      2.00 KiB  4.00 ms",
        "ALL_GATHER      1,200  not recorded  1.00 ms",
        "",
        "in all   4.00 ms; calls that run at the same time count once",
        "exposed  1.00 ms (25.0 %) with no compute beside it",
    ]


def test_what_was_not_recorded_is_said():
    assert "not recorded\n" in printed(collectives_report(None, rank=0), width=60)
    found = CollectiveSummary(total_ns=1, exposed_ns=None, by_kind={})
    assert "exposed  not recorded: no compute was recorded beside them" in printed(
        collectives_report(found, rank=0), width=80
    )
