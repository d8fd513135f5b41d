"""A failed allocation: what was live, who else held what, and which remedy is worth how much."""

from builder import RunBuilder

from fsdp_profile.analysis.memory.postmortem import OtherRank, Remedy, Worth, post_mortems
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, Phase, SpanKind, Strategy

BUCKET, STATE, PARAM = Category.BUCKET, Category.OPTIMIZER_STATE, Category.PARAM


def failed(run: RunBuilder, *, at: int = 50, event: int, asked: int | None = 1000, free: int | None = None):
    return run.row("ooms", t_ns=at, event=event, asked_bytes=asked, device_free_bytes=free, stream=0)


def test_what_was_live_and_where_the_other_ranks_were():
    run = RunBuilder(strategy=Strategy.NONE).set(complete=False).unit("a")
    run.phase(Phase.FORWARD, 0, 40).phase(Phase.BACKWARD, 40, 100)
    run.span(0, SpanKind.BACKWARD, 45, 60, phase=Phase.BACKWARD)
    run.alloc(at=10, size=300, category=STATE).alloc(at=48, free=55, size=20, category=Category.TEMPORARY)
    failed(run, event=1)
    run.rank(1).unit("a").alloc(at=5, size=70).alloc(at=49, free=51, size=2).alloc(at=60, size=9)
    run.rank(2).unit("a")
    [found] = post_mortems(run.build())
    assert (found.rank, found.asked_bytes, found.free_bytes, found.room_bytes) == (0, 1000, None, None)
    assert (found.then.allocated_bytes, found.then.phase, found.then.unit_name) == (320, "BACKWARD", "a")
    assert found.then.by_category == {STATE: 300, Category.TEMPORARY: 20}
    assert found.others == (
        OtherRank(rank=1, allocated_bytes=72, step=0, phase="FORWARD", unit_name=None),
        OtherRank(rank=2, allocated_bytes=None, step=None, phase=None, unit_name=None),
    )
    assert found.device is None


def actions(run: RunBuilder) -> dict[str, tuple[int, str, bool | None]]:
    [found] = post_mortems(run.build())
    return {r.action.split(":")[0]: (r.saves_bytes, str(r.worth), r.is_enough) for r in found.remedies}


def test_remedies_of_ddp_are_worth_what_the_ledger_holds():
    run = RunBuilder(strategy=Strategy.DDP).set(world_size=4)
    run.alloc(at=1, size=400, category=PARAM).alloc(at=2, size=800, category=STATE)
    run.alloc(at=3, size=100, category=BUCKET).alloc(at=4, size=60, category=Category.OPTIMIZER_TEMPORARY)
    failed(run, event=3)
    assert actions(run) == {
        "offload parameters, gradients and optimizer to the host": (1200, "ESTIMATE", None),
        "shard parameters, gradients and optimizer over the 4 ranks": (900, "ESTIMATE", None),
        "gradient_as_bucket_view=True": (100, "MEASURED", None),
        "fused=True or foreach=False": (60, "MEASURED", None),
    }


def test_checkpointing_leaves_the_largest_unit_and_half_a_batch_halves_inputs_too():
    run = RunBuilder().unit("a").unit("b")
    run.alloc(at=1, size=50, unit=0).alloc(at=2, size=70, unit=1).alloc(at=3, size=30)
    run.alloc(at=4, size=10, category=Category.INPUT)
    failed(run, event=3)
    assert actions(run) == {
        "half the batch": (80, "ESTIMATE", None),
        "activation checkpointing of each unit": (50, "ESTIMATE", None),
    }


def test_units_kept_gathered_are_worth_their_bytes_but_for_the_root_and_the_one_at_work():
    run = RunBuilder()
    for name, keeps in (("", "no"), ("a", "no"), ("b", "no"), ("c", "yes")):
        run.unit(name, reshard_after_forward=keeps)
    for unit, size in enumerate((1, 10, 100, 1000)):
        run.alloc(at=1 + unit, size=size, category=Category.UNSHARDED_PARAM, unit=unit)
    run.span(2, SpanKind.FORWARD, 4, 9)
    failed(run, event=3)
    assert actions(run) == {"reshard_after_forward=True": (10, "MEASURED", None)}


def test_a_remedy_is_enough_when_it_makes_room_for_the_request():
    """60 asked, the largest free piece has 20: 40 bytes are missing. Pending 50 would do, 30 in other pieces not."""
    run = RunBuilder().set(device_type="cuda").alloc(at=1, size=10, category=Category.TEMPORARY)
    for address, size in ((20_000, 20), (30_000, 16), (40_000, 14)):
        run.row("segments", address=address, size_bytes=size, start_ns=0, end_ns=NOT_FREED, start_event=0,
                end_event=NOT_FREED, stream=0, pool="0,0", is_expandable=False)  # fmt: skip
    run.totals(reserved=110, active=60)
    failed(run, event=0, asked=60, free=5)
    [found] = post_mortems(run.build())
    assert found.room_bytes == 20
    assert [(r.saves_bytes, r.worth, r.is_enough) for r in found.remedies] == [
        (50, Worth.MEASURED, True),
        (30, Worth.ESTIMATE, False),
    ]
    assert isinstance(found.remedies[0], Remedy)


def test_a_run_without_a_failed_allocation_has_none():
    assert post_mortems(RunBuilder().alloc(at=1, size=1).build()) == []


def test_the_gap_between_allocated_and_reserved_is_split() -> None:
    """pytorch/pytorch#71616: 22.96 GiB allocated, 36.19 reserved, and 648 MiB cannot be had: where are 13.23 GiB?"""
    gib = 1 << 30
    allocated, active, held = round(22.96 * gib), round(30.0 * gib), round(36.19 * gib)
    run = RunBuilder().set(device_type="cuda", complete=False).alloc(at=1, size=allocated)
    run.totals(reserved=held, active=active)
    failed(run, event=0, asked=648 << 20, free=100 << 20)
    [found] = post_mortems(run.build())
    device = found.device
    assert device is not None and device.pending_free_bytes is not None and device.reserved_unused_bytes is not None
    assert (device.pending_free_bytes, device.reserved_unused_bytes) == (active - allocated, held - active)
    assert round((device.pending_free_bytes + device.reserved_unused_bytes) / gib, 2) == 13.23
