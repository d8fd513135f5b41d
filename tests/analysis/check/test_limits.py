"""Limits and baselines: what is a breach, what is noise, and what is named."""

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.check.limits import CheckReport, Limits, Verdict, check
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, Phase, SpanKind

MIB, KIB = 1 << 20, 1 << 10


def job(
    *, activation: int = 10 * MIB, gathers: int = 2, group: str = "", steps: int = 3, jitter: int = 0, slow: int = 0
) -> Run:
    """Two units, `steps` steps of 100 ns; the root has 4 MiB of parameters."""
    b = RunBuilder().unit("", sharded=4 * MIB).unit("layers.0", sharded=MIB)
    b.alloc(at=0, size=4 * MIB, category=Category.PARAM, unit=0)
    for step in range(steps):
        t = 1000 * step + slow * step
        b.step(step, t, t + 100 + slow).phase(Phase.FORWARD, t, t + 100 + slow, step=step)
        b.alloc(at=t + 10, free=t + 50, size=activation + jitter * (step % 2), unit=1)
        for n in range(gathers):
            b.span(1, SpanKind.ALL_GATHER, t + 10 + n, t + 11 + n, step=step)
            b.span(1, SpanKind.RESHARD, t + 30 + n, t + 31 + n, step=step)
        b.collective(CollectiveKind.REDUCE_SCATTER, t + 60, t + 70, unit=1, step=step, group_description="default_pg")
        if group:
            b.collective(CollectiveKind.ALL_REDUCE, t + 80, t + 81, step=step, group_description=group)
        b.kernel(t + 20, t + 60, step=step)
    return b.build()


def failed(report: CheckReport) -> list[str]:
    return [found.message for found in report.failed]


@pytest.mark.parametrize(("limit", "verdict"), [(14 * MIB, Verdict.OK), (14 * MIB - 1, Verdict.BREACH)])
def test_the_peak_may_be_as_high_as_the_limit(limit, verdict):
    [found] = check(job(), limits=Limits(peak_bytes=limit)).checks
    assert (found.name, found.verdict, found.measured, found.limit, found.rank) == (
        "max-peak", verdict, 14 * MIB, limit, 0,
    )  # fmt: skip


def test_a_broken_peak_names_where_and_what():
    assert failed(check(job(), limits=Limits(peak_bytes=10 * MIB))) == [
        "peak 14.00 MiB, 4.00 MiB over the limit of 10.00 MiB on rank 0 in forward of step 0, active unit layers.0: "
        "activations 10.00 MiB, parameters 4.00 MiB"
    ]


def test_a_limit_on_what_was_not_recorded_fails():
    report = check(job(), limits=Limits(reserved_bytes=1, growth_bytes_per_step=0))
    assert [found.verdict for found in report.checks] == [Verdict.NOT_RECORDED] * 2
    assert failed(report) == [
        "reserved: not recorded, so the limit cannot be checked",
        "growth: needs 5 recorded steps, so the limit cannot be checked",
    ]


def test_reserved_is_that_of_the_worst_rank():
    b = RunBuilder().rank(0).totals(reserved=5 * MIB, active=MIB).alloc(at=1, size=MIB)
    run = b.rank(1).totals(reserved=7 * MIB, active=MIB).alloc(at=1, size=MIB).build()
    assert failed(check(run, limits=Limits(reserved_bytes=6 * MIB))) == [
        "reserved 7.00 MiB, 1.00 MiB over the limit of 6.00 MiB on rank 1"
    ]


def test_exposed_is_a_share_of_the_steps():
    """Of each step's 50 ns of work (20 to 70) 10 are a reduce-scatter with no compute beside it."""
    [found] = check(job(), limits=Limits(exposed_ratio=0.05)).checks
    assert (found.verdict, found.measured) == (Verdict.BREACH, 0.1)


def test_the_share_of_no_complete_step_is_not_recorded():
    b = RunBuilder().alloc(at=1, size=MIB).step(0, 0, 100, complete=False)
    b.collective(CollectiveKind.REDUCE_SCATTER, 60, 70).kernel(20, 60)
    [found] = check(b.build(), limits=Limits(exposed_ratio=0.9)).checks
    assert found.verdict is Verdict.NOT_RECORDED


def test_unknown_is_a_share_of_the_peak():
    run = RunBuilder().alloc(at=1, size=90).alloc(at=2, size=10, category=Category.UNKNOWN).build()
    assert failed(check(run, limits=Limits(unknown_ratio=0.05))) == [
        "unknown 10.0 % of the peak on rank 0, over the limit of 5.0 %"
    ]


def test_growth_names_the_category_and_the_operator():
    b = RunBuilder()
    for step in range(6):
        t = 100 * step
        b.step(step, t, t + 100).alloc(at=t + 1, size=KIB, category=Category.TEMPORARY, operator="aten::cat")
    assert failed(check(b.build(), limits=Limits(growth_bytes_per_step=100))) == [
        "memory grows 1.00 KiB a step on rank 0, over the limit of 100 B; temporaries 1.00 KiB a step, most from "
        "aten::cat"
    ]


def test_the_same_twice_holds():
    report = check(job(), limits=Limits(), baselines=[job()])
    assert failed(report) == []
    assert [found.name for found in report.checks] == [
        "baseline/peak", "baseline/category/PARAM", "baseline/category/ACTIVATION",
        "baseline/unit/(root)/gathers", "baseline/unit/(root)/reshards", "baseline/unit/(root)/kept",
        "baseline/unit/layers.0/gathers", "baseline/unit/layers.0/reshards", "baseline/unit/layers.0/kept",
        "baseline/communicator/default_pg of 2 ranks/REDUCE_SCATTER/of units",
    ]  # fmt: skip


def test_more_activations_are_named_with_their_unit():
    assert failed(check(job(activation=11 * MIB), limits=Limits(), baselines=[job()])) == [
        "peak 15.00 MiB against 14.00 MiB: +1.00 MiB (+7.1%)",
        "activations 11.00 MiB against 10.00 MiB: +1.00 MiB (+10.0%), most in unit layers.0 (+1.00 MiB)",
    ]


def test_fewer_bytes_are_no_breach():
    assert failed(check(job(activation=5 * MIB), limits=Limits(), baselines=[job()])) == []


def test_a_unit_that_is_not_resharded_is_named():
    assert failed(check(job(gathers=1), limits=Limits(), baselines=[job()])) == [
        "unit layers.0 is gathered 1x per step, against 2x",
        "unit layers.0 is resharded 1x per step, against 2x",
    ]


def test_one_more_communicator_is_named():
    assert failed(check(job(group="norms"), limits=Limits(), baselines=[job()])) == [
        "one more communicator norms of 2 ranks: 1x all-reduce of no unit per step, none in the baseline"
    ]


@pytest.mark.parametrize(("more", "is_breach"), [(100 * KIB, False), (103 * KIB, True)])
def test_bytes_may_vary_by_one_percent(more, is_breach):
    found = check(job(activation=10 * MIB + more), limits=Limits(), baselines=[job()])
    assert ("baseline/category/ACTIVATION" in {c.name for c in found.failed}) is is_breach


def test_bytes_may_vary_by_what_the_baselines_steps_do():
    noisy = job(jitter=MIB, steps=4)  # 10 and 11 MiB in turn: the highest is 11, later steps differ by 1
    assert failed(check(job(activation=12 * MIB), limits=Limits(), baselines=[noisy])) == []
    assert failed(check(job(activation=12 * MIB + 1), limits=Limits(), baselines=[noisy])) != []


def test_bytes_may_vary_by_what_several_baselines_do():
    pair = [job(activation=10 * MIB), job(activation=11 * MIB)]
    assert failed(check(job(activation=12 * MIB), limits=Limits(), baselines=pair)) == []
    assert failed(check(job(activation=12 * MIB + 1), limits=Limits(), baselines=pair)) != []


def test_time_is_compared_when_asked_to_only():
    base, slow = job(steps=5), job(steps=5, slow=50)
    assert failed(check(slow, limits=Limits(), baselines=[base])) == []
    assert failed(check(slow, limits=Limits(slowdown_ratio=0.2), baselines=[base])) == [
        "median step 0.1 us against 0.1 us: +50.0%; the baseline's own steps vary by 0.0 us"
    ]
    assert failed(check(slow, limits=Limits(slowdown_ratio=0.5), baselines=[base])) == []


def test_a_category_that_is_gone_holds_and_one_that_is_new_does_not():
    old = RunBuilder().alloc(at=1, size=MIB, category=Category.BUCKET).build()
    new = RunBuilder().alloc(at=1, size=MIB, category=Category.BUFFER).build()
    assert failed(check(new, limits=Limits(), baselines=[old])) == ["module buffers 1.00 MiB against 0 B: +1.00 MiB"]
