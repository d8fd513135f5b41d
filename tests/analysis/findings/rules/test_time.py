from analysis.findings.faults import GIB, MIB, PARAM, told
from builder import RunBuilder

from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind


def test_ranks_that_need_more_than_others() -> None:
    run = RunBuilder().alloc(at=1, size=GIB, category=PARAM)
    run.rank(1).alloc(at=1, size=GIB, category=PARAM).alloc(at=2, size=GIB, category=Category.ACTIVATION)
    assert told(run, "imbalance").claim == (
        "Rank 1 peaks at 2.00 GiB, rank 0 at 1.00 GiB: 1.00 GiB apart, most of it activations (+1.00 GiB)."
    )


def late_run(*, hangs: bool = False) -> RunBuilder:
    """Rank 1 is 400 of every 1000 ns late to an all-gather; when it hangs it misses the last."""
    run = RunBuilder()
    for rank in range(2):
        run.rank(rank).unit("a").step(0, 0, 10_000).alloc(at=1, size=MIB)
        for number in range(9 if hangs and rank else 10):
            start = 1000 * number + (400 if rank else 0)
            run.collective(CollectiveKind.ALL_GATHER, start, 1000 * number + 500, unit=0, group="0", size_bytes=8)
    return run


def test_a_rank_that_is_always_late() -> None:
    found = told(late_run(), "straggler")
    assert found.claim.startswith("Rank 1 came last in 10 of 10 collectives")
    assert found.claim.endswith("made the others wait 4.0 us in total, 20.0 % of all ranks' steps.")
    assert found.saves_ns == 4000


def test_a_run_without_memory_has_its_findings_of_time() -> None:
    run = RunBuilder()
    for rank in range(2):
        run.rank(rank).step(0, 0, 1000)
        run.collective(CollectiveKind.ALL_REDUCE, 400 * rank, 500, group="0", size_bytes=8)
    assert [(found.rule, found.claim) for found in findings(run.build())] == [
        (
            "straggler",
            "Rank 1 came last in 1 of 1 collectives and made the others wait 0.4 us in total, 20.0 % of all ranks' "
            "steps.",
        )
    ]


def test_a_rank_that_never_came() -> None:
    assert told(late_run(hangs=True), "never-joined").claim == "Rank 1 never joined all-gather #9 of a in step 0."


def test_gathers_that_nothing_hides() -> None:
    run = RunBuilder().set(device_type="cuda").step(0, 0, 100_000).alloc(at=1, size=MIB)
    run.kernel(0, 60_000).collective(CollectiveKind.ALL_GATHER, 50_000, 100_000)
    found = told(run, "exposed-gathers")
    assert found.claim == "40.0 us of all-gathers in a 100.0 us step are not hidden behind compute (40.0 %)."
    assert found.saves_ns == 40_000
