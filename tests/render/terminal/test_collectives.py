from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary, KindTotal
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.render.terminal.collectives import collectives_report, cross_rank_report
from fsdp_profile.render.terminal.ranks import stragglers_report

US = 1_000


def test_kinds_come_longest_first_and_the_exposed_share_is_of_the_whole():
    found = CollectiveSummary(
        total_ns=4_000_000,
        exposed_ns=1_000_000,
        by_kind={
            "ALL_GATHER": KindTotal(count=1_200, size_bytes=None, total_ns=1_000_000),
            "REDUCE_SCATTER": KindTotal(count=3, size_bytes=2048, total_ns=4_000_000),
        },
    )
    per_step = StepTraffic(size_bytes=4096, wire_bytes=2048, num_steps=3)
    report = collectives_report(found, rank=1, per_step=per_step)
    assert [line.rstrip() for line in printed(report, width=120).splitlines()] == [
        "Collectives  rank 1, over the training steps",
        "kind            calls         bytes     time       exposed",
        "──────────────────────────────────────────────────────────",
        "reduce-scatter      3      2.00 KiB  4.00 ms  not recorded",
        "all-gather      1,200  not recorded  1.00 ms  not recorded",
        "",
        "- 1.00 ms of 4.00 ms of collective time was not hidden behind compute (25.0 %), over the training steps of "
        "rank 1. Calls",
        "  that run at the same time count once.",
        "- Rank 1 sends 2.00 KiB per step if each collective runs as a ring (estimate); the whole arrays hold 4.00 KiB "
        "(median of",
        "  3 complete steps).",
    ]


def test_what_was_not_recorded_is_said():
    assert "not recorded\n" in printed(collectives_report(None, rank=0), width=60)
    page = printed(collectives_report(CollectiveSummary(total_ns=1, exposed_ns=None, by_kind={}), rank=0), width=200)
    assert "is not recorded: no kernels or operators were recorded." in page
    assert "What a step sends is not recorded: there is no complete step with collectives of known size" in page


def across_run(path, **values):
    """Rank 1 comes 40 us late to both all-gathers; rank 2 has stopped before the second."""
    b = RunBuilder(path=path / "run").set(world_size=3)
    for rank in range(3):
        b.rank(rank).unit("layers.7").step(0, 0, 300 * US if rank < 2 else 90 * US)
        for number in range(3 if rank < 2 else 2):
            start = 100 * US * number + (40 * US if rank == 1 and number < 2 else 0)
            end = 100 * US * number + 60 * US
            b.collective(CollectiveKind.ALL_GATHER, start, end, unit=0, group="0", group_size=3, size_bytes=3 << 20)
    return cross_rank(b.set(**values).build())


def test_wait_and_transfer_are_told_apart_and_what_was_missed_is_named(tmp_path):
    found = across_run(tmp_path)
    assert [line.rstrip() for line in printed(cross_rank_report(found), width=100).splitlines()] == [
        "Cross-rank  waits are summed over the ranks, a transfer begins when its last rank starts",
        "kind        matched      wait  transfer  median bus bandwidth",
        "─────────────────────────────────────────────────────────────",
        "all-gather        2  160.0 us   40.0 us           104.86 GB/s",
        "",
        "- 2 of 3 collectives were matched between the ranks; 1 not: some of its ranks never joined.",
        "- The clocks of the ranks are the same; ends of the same collective agree within 0.0 us (median).",
        "- Rank 2 never joined all-gather #2 of layers.7 (step 0, group 0); its recording ends before that.",
    ]


def test_the_last_to_come_are_ranked(tmp_path):
    lines = [line.rstrip() for line in printed(stragglers_report(across_run(tmp_path)), width=100).splitlines()]
    assert lines[:5] == [
        "Late ranks  in 2 matched collectives",
        "rank  times last  wait caused  slowest unit      late in that unit  worst step  late in that step",
        "─────────────────────────────────────────────────────────────────────────────────────────────────",
        "   1           2     160.0 us  (no active unit)            80.0 us           0            80.0 us",
        "Rank 1 came last in 2 of 2 matched collectives, and the other ranks waited 160.0 us for it in total.",
    ]


def test_one_rank_has_nobody_to_wait_for(tmp_path):
    found = cross_rank(RunBuilder(path=tmp_path / "run").collective(CollectiveKind.ALL_GATHER, 0, 9).build())
    assert cross_rank_report(found) is None
    assert stragglers_report(found) is None
