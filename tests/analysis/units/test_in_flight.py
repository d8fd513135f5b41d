"""How many units are gathered at once, and how many ahead of their use."""

from builder import RunBuilder

from fsdp_profile.analysis.units.in_flight import InFlight, gathers, in_flight
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, Phase, Prefetch, SpanKind

FORWARD, BACKWARD, GATHERED = SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.UNSHARDED


def one_step() -> RunBuilder:
    """Root 4 bytes, blocks a and b 10 and 20 bytes, forward to 50 and backward to 100.

    Forward: each gathered inside its own forward, a resharded before b. Backward: b is gathered inside its backward,
    a ahead of its own while b is the active unit.
    """
    back = {"phase": Phase.BACKWARD}
    run = RunBuilder().step(0, 0, 100).phase(Phase.FORWARD, 0, 50).phase(Phase.BACKWARD, 50, 100)
    run.unit("").unit("a").unit("b")
    run.span(0, FORWARD, 0, 50).span(0, GATHERED, 1, 95, size=4)
    run.span(1, FORWARD, 10, 20).span(1, GATHERED, 11, 20, size=10)
    run.span(2, FORWARD, 20, 30).span(2, GATHERED, 21, 30, size=20)
    run.span(2, BACKWARD, 55, 70, **back).span(2, GATHERED, 56, 72, size=20, **back)
    prefetch = {"prefetched": True, "prefetch": Prefetch.IMPLICIT}
    run.span(1, GATHERED, 60, 85, size=10, **back, **prefetch).span(1, BACKWARD, 71, 80, **back)
    return run


def test_each_gather_has_its_issue_its_use_and_its_end() -> None:
    rows = gathers(one_step().build(), rank=0).select(["name", "phase", "issue_ns", "use_ns", "end_ns", "prefetch"])
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("", "FORWARD", 1, 1, 95, ""),
        ("a", "FORWARD", 11, 11, 20, ""),
        ("b", "FORWARD", 21, 21, 30, ""),
        ("b", "BACKWARD", 56, 56, 72, ""),
        ("a", "BACKWARD", 60, 71, 85, "IMPLICIT"),
    ]


def test_depth_and_bytes_by_phase() -> None:
    assert in_flight(one_step().build(), rank=0) == [
        InFlight(
            phase="FORWARD", step=0, max_gathered=2, gathered_bytes=24, units=("", "b"), max_ahead=0, ahead_bytes=0,
            held_bytes=None,
        ),
        InFlight(
            phase="BACKWARD", step=0, max_gathered=3, gathered_bytes=34, units=("", "b", "a"), max_ahead=1,
            ahead_bytes=10, held_bytes=None,
        ),
    ]  # fmt: skip


def test_what_gathering_held_is_read_from_the_ledger() -> None:
    run = one_step()
    run.alloc(at=1, free=95, size=4, category=Category.UNSHARDED_PARAM)
    run.alloc(at=11, free=20, size=10, category=Category.ALL_GATHER).alloc(at=12, free=20, size=10)
    run.alloc(at=56, free=72, size=20, category=Category.UNSHARDED_PARAM)
    run.alloc(at=60, free=85, size=10, category=Category.ALL_GATHER)
    assert [found.held_bytes for found in in_flight(run.build(), rank=0)] == [14, 34]


def test_a_gather_that_is_never_used_is_ahead_until_its_reshard() -> None:
    run = RunBuilder().step(0, 0, 100).unit("a").unit("b")
    run.span(0, FORWARD, 0, 10).span(0, GATHERED, 2, 10, size=8)
    run.span(1, GATHERED, 5, 60, size=16, prefetched=True).span(1, FORWARD, 70, 80)
    found = run.build()
    assert gathers(found, rank=0).column("use_ns").to_pylist() == [2, None]
    [forward] = in_flight(found, rank=0)
    assert (forward.max_gathered, forward.gathered_bytes, forward.max_ahead, forward.ahead_bytes) == (2, 24, 1, 16)


def test_the_most_of_several_steps_and_a_gather_still_open() -> None:
    run = RunBuilder().step(0, 0, 10).step(1, 10, 20).unit("a").unit("b")
    run.span(0, GATHERED, 0, 5, size=1)
    run.span(0, GATHERED, 11, 15, size=1, step=1).span(1, GATHERED, 12, NOT_FREED, size=2, step=1)
    [forward] = in_flight(run.build(), rank=0)
    assert (forward.step, forward.max_gathered, forward.gathered_bytes, forward.units) == (1, 2, 3, ("a", "b"))


def test_nothing_gathered_is_nothing() -> None:
    assert in_flight(RunBuilder().step(0, 0, 10).unit("bucket 0").build(), rank=0) == []
