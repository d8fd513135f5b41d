"""Ratios out of HTA's tables, and what is counted in a trace to explain a difference."""

import pytest
from builder import RunBuilder
from ingest.kineto.kineto_factory import kernel, launch, timed, write

from fsdp_profile.analysis.hta.comparison import Differences, Ratios, hta_ratios, is_same, ours_by_rank
from fsdp_profile.analysis.hta.runner import HtaTable


def table(name: str, columns: tuple[str, ...], *rows: tuple[object, ...], error: str | None = None) -> HtaTable:
    return HtaTable(name=name, columns=columns, rows=rows, error=error)


def test_ratios_come_from_the_tables_by_rank():
    found = hta_ratios(
        [
            table("temporal breakdown", ("rank", "idle_time_pctg", "compute_time_pctg"), (3, 16.36, 60.56)),
            table("communication computation overlap", ("rank", "comp_comm_overlap_pctg"), (3, 46.24), (0, None)),
            table("kernel breakdown", ("kernel_type", "sum"), ("COMPUTATION", 1)),
        ]
    )
    assert list(found) == [0, 3]
    assert found[0] == Ratios(overlap=None, idle=None, compute=None)
    assert (found[3].overlap, found[3].idle, found[3].compute) == pytest.approx((0.4624, 0.1636, 0.6056))


def test_a_table_that_failed_leaves_none():
    assert hta_ratios([table("temporal breakdown", (), error="IndexError: out of bounds")]) == {}


@pytest.mark.parametrize(
    ("hta", "ours", "same"),
    [(0.1561, 0.156149, True), (0.1561, 0.15605, True), (0.1561, 0.1562, False), (None, 0.1, None), (0.1, None, None)],
)
def test_the_same_is_to_the_two_decimals_that_hta_gives(hta, ours, same):
    assert is_same(hta, ours) is same


EVENTS = [
    timed("aten::mm", 0, 100),
    kernel("gemm", 1, 2, correlation=99),  # launched before the recording
    launch(10, 1),
    kernel("ncclDevKernel_AllGather_RING_LL", 12, 4, correlation=1),
    launch(20, 2),
    kernel("void dpsk::ep::internode::combine<false, 8>(int)", 24, 4, stream=9, correlation=2),
    launch(30, 3),
    timed("Memcpy DtoH", 34, 1, cat="gpu_memcpy", stream=7, correlation=3),
]
STEPS = [timed(f"ProfilerStep#{i}", 50 * i, 50, cat="user_annotation") for i in range(2)]


@pytest.mark.parametrize(("steps", "dropped"), [(STEPS, 1), (STEPS[:1], 0)])
def test_what_hta_does_otherwise_is_counted(tmp_path, steps, dropped):
    path = write(tmp_path / "t.json", [*EVENTS, *steps])
    run = RunBuilder(path=tmp_path / "run").set(device_type="cuda").kernel(0, 10).kernel(50, 60).build()
    found = ours_by_rank(run, {0: path})
    assert found[0].differences == Differences(
        num_works=4, num_dropped=dropped, num_collectives=2, num_taken_for_compute=1
    )
    assert found[0].ratios == Ratios(overlap=None, idle=40 / 60, compute=20 / 60)


def test_steps_are_counted_over_all_ranks(tmp_path):
    """HTA has one table of names: a rank with one step drops too, when another has another."""
    paths = {rank: write(tmp_path / f"{rank}.json", [*EVENTS, STEPS[rank]]) for rank in range(2)}
    run = RunBuilder(path=tmp_path / "run").rank(0).kernel(0, 1).rank(1).kernel(0, 1).build()
    assert [our.differences.num_dropped for our in ours_by_rank(run, paths).values()] == [1, 1]


def test_a_run_without_kernels_has_no_ratios(tmp_path):
    run = RunBuilder(path=tmp_path / "run").alloc(at=0, size=1).build()
    found = ours_by_rank(run, {0: write(tmp_path / "t.json", EVENTS)})
    assert found[0].ratios == Ratios(overlap=None, idle=None, compute=None)
