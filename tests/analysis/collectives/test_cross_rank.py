"""Synthetic runs of several ranks with known overlap, skew and late ranks: every answer is exact."""

import pytest
from analysis.collectives.several_ranks import GATHER, REDUCE, column, run_of
from builder import RunBuilder

from fsdp_profile.analysis.collectives.cross_rank import by_kind, cross_rank
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.collectives.waits import bus_factor
from fsdp_profile.core.schema import CollectiveKind, SpanKind

US, MS = 1_000, 1_000_000


def test_wait_is_until_the_last_start_and_transfer_from_there(tmp_path):
    run = run_of(
        tmp_path,
        [(GATHER, 100 * US, 900 * US), (REDUCE, 1000 * US, 1500 * US)],
        [(GATHER, 700 * US, 900 * US), (REDUCE, 1200 * US, 1500 * US)],
        [(GATHER, 300 * US, 900 * US), (REDUCE, 1300 * US, 1500 * US)],
        size_bytes=6_000_000,
    )
    found = cross_rank(run)
    assert (found.num_matched, found.num_unmatched, found.unmatched) == (2, 0, {})
    assert column(found, "late_rank") == [1, 2]
    assert found.calls.column("wait_ns").to_pylist() == [600 * US, 0, 400 * US, 300 * US, 100 * US, 0]
    assert column(found, "wait_ns") == [1000 * US, 400 * US]
    assert column(found, "late_ns") == [400 * US, 100 * US]
    assert column(found, "transfer_ns") == [200 * US, 200 * US]
    assert column(found, "algbw_bytes_per_s") == [3e10, 3e10]
    assert column(found, "busbw_bytes_per_s") == [3e10 * (2 / 3), 3e10 * (4 / 3)]  # (n-1)/n and 2(n-1)/n
    assert (found.clock.offset_ns, found.clock.residual_ns, found.clock.reason) == ({0: 0, 1: 0, 2: 0}, 0, "")
    kinds = by_kind(found)
    assert (kinds["ALL_GATHER"].wait_ns, kinds["ALL_GATHER"].transfer_ns) == (1000 * US, 200 * US)
    assert kinds["ALL_REDUCE"].busbw_bytes_per_s == 3e10 * (4 / 3)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (CollectiveKind.ALL_REDUCE, 1.75), (CollectiveKind.ALL_GATHER, 0.875), (CollectiveKind.REDUCE_SCATTER, 0.875),
        (CollectiveKind.ALL_TO_ALL, 0.875), (CollectiveKind.BROADCAST, 1.0), (CollectiveKind.REDUCE, 1.0),
    ],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(kind, factor):
    assert bus_factor(kind.value, 8) == factor


def test_no_bandwidth_without_a_size_or_a_transfer(tmp_path):
    both = [(GATHER, 0, 5 * US), (REDUCE, 10 * US, 20 * US, {"size_bytes": None})]
    late = [(GATHER, 5 * US, 5 * US), (REDUCE, 10 * US, 20 * US, {"size_bytes": None})]
    found = cross_rank(run_of(tmp_path, both, late, size_bytes=8))
    assert column(found, "transfer_ns") == [0, 10 * US]
    assert column(found, "busbw_bytes_per_s") == [None, None]
    assert column(found, "late_rank") == [1, None]  # both came at once to the second
    assert by_kind(found)["ALL_REDUCE"].busbw_bytes_per_s is None


def test_a_run_without_collectives(tmp_path):
    found = cross_rank(RunBuilder(path=tmp_path / "run").rank(0).rank(1).build())
    assert (found.num_matched, found.num_unmatched, by_kind(found), found.stragglers) == (0, 0, {}, ())


def test_stragglers_are_ranked_by_the_wait_they_caused_and_say_what_they_were_busy_with(tmp_path):
    b = RunBuilder(path=tmp_path / "run").set(world_size=3)
    starts = [(0, 50, 10), (100, 150, 120), (200, 210, 260)]
    for rank in range(3):
        b.rank(rank).unit("").unit("layers.0").unit("layers.1")
        for step in range(3):
            b.step(step, 100 * step, 100 * step + 99)
            b.collective(GATHER, starts[step][rank], 100 * step + 80, unit=1, step=step, group_size=3)
        if rank == 1:
            b.span(0, SpanKind.FORWARD, 0, 99).span(2, SpanKind.FORWARD, 20, 49)
            b.span(0, SpanKind.FORWARD, 100, 199, step=1).span(2, SpanKind.FORWARD, 125, 149, step=1)
    found = cross_rank(b.build())
    assert found.stragglers == (
        Straggler(
            rank=1, times_last=2, wait_caused_ns=90 + 80, worst_unit="layers.1", worst_unit_late_ns=40 + 30,
            worst_step=0, worst_step_late_ns=40,
        ),
        Straggler(
            rank=2, times_last=1, wait_caused_ns=110, worst_unit=None, worst_unit_late_ns=50, worst_step=2,
            worst_step_late_ns=50,
        ),
    )  # fmt: skip
    assert column(found, "late_unit") == ["layers.1", "layers.1", None]
    assert column(found, "unit") == ["layers.0"] * 3


def test_set_up_is_not_looked_at(tmp_path):
    calls = [(GATHER, 0, 9, {"step": -1}), (GATHER, 20, 29)]
    assert cross_rank(run_of(tmp_path, calls, calls)).num_matched == 1
