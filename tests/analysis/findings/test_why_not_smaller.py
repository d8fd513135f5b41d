"""The four questions of facebookresearch/fairscale#1050 (FSDP needs as much as DDP), answered with values."""

from builder import RunBuilder

from fsdp_profile.analysis.findings.why_not_smaller import why_not_smaller
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy, UnitKind

MIB = 1 << 20


def test_every_reason_at_once_on_a_device() -> None:
    """Two ranks, one unit, activations of two thirds, and nvidia-smi shows four times what tensors hold."""
    run = RunBuilder().set(device_type="cuda").unit("", numel=100, unsharded=20 * MIB, shard_size=2)
    run.alloc(at=1, size=10 * MIB, category=Category.PARAM)
    run.alloc(at=2, size=20 * MIB, category=Category.UNSHARDED_PARAM).alloc(at=3, size=60 * MIB)
    run.totals(reserved=120 * MIB, active=90 * MIB).device_sample(3, device_used_bytes=360 * MIB)
    found = why_not_smaller(run.build())
    assert [(test.question, test.is_reason) for test in found] == [
        ("How was it measured?", True),
        ("Do activations dominate?", True),
        ("Are there enough ranks?", True),
        ("Is the model wrapped in units?", True),
    ]
    assert [test.answer for test in found] == [
        "Tensors hold 90.00 MiB, the allocator reserves 120.00 MiB, nvidia-smi reports 360.00 MiB: only the first "
        "becomes smaller by sharding.",
        "Activations are 60.00 MiB of 90.00 MiB (66.7 %); sharding does not divide them.",
        "2 ranks keep 10.00 MiB of states each and save 10.00 MiB; gathered parameters and buffers take 20.00 MiB "
        "back.",
        "1 unit; the largest holds 100.0 % of the parameters and gathers 20.00 MiB at once.",
    ]


def test_none_of_them_on_a_run_that_shards_well() -> None:
    run = RunBuilder().alloc(at=1, size=100 * MIB, category=Category.OPTIMIZER_STATE)
    for block in range(4):
        run.unit(f"layers.{block}", numel=10, unsharded=MIB, shard_size=8)
    run.alloc(at=2, size=10 * MIB).alloc(at=3, size=2 * MIB, category=Category.UNSHARDED_PARAM)
    assert [test.is_reason for test in why_not_smaller(run.build())] == [None, False, False, False]


def test_a_run_that_does_not_shard_is_not_asked() -> None:
    run = RunBuilder(strategy=Strategy.DDP).alloc(at=1, size=MIB)
    assert why_not_smaller(run.unit("bucket 0", kind=UnitKind.DDP_BUCKET, shard_size=1).build()) == []
