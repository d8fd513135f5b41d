import pytest
from analysis.findings.faults import GIB, MIB, PARAM, gib, rules, told
from builder import RunBuilder

from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, Phase, SpanKind, UnitKind


def test_a_flat_parameter_of_frozen_and_trainable_weights() -> None:
    """Lightning-AI/litgpt#1392: 131,072 trainable in a flat parameter of 201,510,912: 384.4 MiB bf16, 768.7 fp32."""
    run = RunBuilder().alloc(at=1, size=GIB)
    run.unit("transformer.h.0", numel=201_510_912, trainable_numel=131_072, kind=UnitKind.FSDP1,
             compute_dtype="bfloat16")  # fmt: skip
    found = told(run, "mixed-frozen")
    assert found.claim == (
        "transformer.h.0 mixes 131,072 trainable and 201,379,840 frozen parameters (99.93 % frozen): before its "
        "reduce-scatter it holds a gradient of all 201,510,912 elements, 384.35 MiB in 16 bit / 768.70 MiB in 32 bit."
    )
    assert (found.unit, found.saves_bytes) == ("transformer.h.0", 2 * 201_379_840)


@pytest.mark.parametrize(("trainable", "kind"), [(0, UnitKind.FSDP1), (100, UnitKind.FSDP1), (7, UnitKind.FSDP2)])
def test_units_of_one_kind_and_fsdp2_do_not_mix(trainable: int, kind: UnitKind) -> None:
    run = RunBuilder().alloc(at=1, size=GIB).unit("a", numel=100, trainable_numel=trainable, kind=kind)
    assert "mixed-frozen" not in rules(run)


def test_frozen_weights_in_float32() -> None:
    """huggingface/accelerate#3844: FSDP2 casts frozen weights to float32, 4 B each, where FSDP1 keeps 2 B."""
    run = RunBuilder().alloc(at=1, size=8 * GIB, category=PARAM)
    run.unit("a", numel=2 * GIB, trainable_numel=GIB // 4, sharded=4 * GIB)
    found = told(run, "frozen-in-float32")
    assert found.claim == (
        f"{2 * GIB - GIB // 4:,} frozen parameters are stored in float32, 4 B each: 3.50 GiB on this rank, where "
        "bfloat16 would need 1.75 GiB."
    )
    assert found.saves_bytes == gib(1.75)
    half = RunBuilder().alloc(at=1, size=8 * GIB).unit("a", numel=2 * GIB, trainable_numel=0, dtype="bfloat16")
    assert "frozen-in-float32" not in rules(half)


def test_one_unit_that_holds_everything() -> None:
    """huggingface/accelerate#3474: Qwen2.5-1.5B with NO_WRAP."""
    run = RunBuilder().alloc(at=1, size=4 * GIB).unit("", numel=1_543_714_304, unsharded=3_087_428_608)
    assert told(run, "one-unit").claim == (
        "1 unit, (root), holds 100.0 % of the parameters: 2.88 GiB are gathered at once, in forward and in backward."
    )


def test_the_root_stays_gathered_whatever_the_blocks_do() -> None:
    """pytorch/pytorch#149029: reshard_after_forward seems ignored; it is the root that stays."""
    run = RunBuilder().phase(Phase.FORWARD, 0, 50).phase(Phase.BACKWARD, 50, 100).alloc(at=1, size=10 * MIB)
    run.unit("", unsharded=4 * MIB).unit("layers.0", unsharded=MIB)
    run.span(0, SpanKind.UNSHARDED, 1, 90).span(1, SpanKind.UNSHARDED, 5, 20)
    found = told(run, "root-stays-gathered")
    assert found.claim == (
        "(root) stays gathered from forward to backward, 4.00 MiB: the root is not resharded after forward unless it "
        "is asked for (torch 2.13.0)."
    )
    assert found.saves_bytes == 4 * MIB
    resharded = RunBuilder().phase(Phase.FORWARD, 0, 50).phase(Phase.BACKWARD, 50, 100).alloc(at=1, size=10 * MIB)
    resharded.unit("", unsharded=4 * MIB).span(0, SpanKind.UNSHARDED, 1, 40)
    assert "root-stays-gathered" not in rules(resharded)


def test_units_that_stay_gathered() -> None:
    run = RunBuilder().alloc(at=1, size=10 * MIB).alloc(at=2, size=12 * MIB, category=Category.UNSHARDED_PARAM)
    for name in ("a", "b", "c"):
        run.unit(name, unsharded=4 * MIB, numel=1, reshard_after_forward="no")
    found = told(run, "units-stay-gathered")
    assert found.claim.startswith("3 of 3 units stay gathered from forward to backward (12.00 MiB, 12.00 MiB of them")
    assert found.saves_bytes == 4 * MIB


def test_a_gather_that_nobody_used_and_one_that_came_too_early() -> None:
    run = RunBuilder().alloc(at=1, size=10 * MIB).unit("a").unit("b").unit("c")
    run.span(0, SpanKind.UNSHARDED, 2, 8, size=MIB)
    for unit, use in ((1, 20), (2, 30)):
        run.span(unit, SpanKind.UNSHARDED, 10, 40, size=3 * MIB, prefetched=True)
        run.span(unit, SpanKind.FORWARD, use, use + 5)
    assert told(run, "gathered-for-nothing").claim == ("a was gathered 1 times and not used: 1.00 MiB of all-gathers.")
    deep = told(run, "deep-prefetch")
    assert deep.claim == "In forward up to 2 units are gathered ahead of their use: 6.00 MiB."
    assert deep.saves_bytes == 3 * MIB


def test_two_ranks_hardly_pay() -> None:
    run = RunBuilder().unit("a", shard_size=2).alloc(at=1, size=100 * MIB, category=PARAM)
    run.alloc(at=2, size=60 * MIB, category=Category.UNSHARDED_PARAM)
    assert told(run, "too-few-ranks").claim == (
        "Over 2 ranks sharding saves 100.00 MiB of states and needs 60.00 MiB of gathered parameters and buffers at "
        "the peak."
    )
    more = RunBuilder().unit("a", shard_size=8).alloc(at=1, size=100 * MIB, category=PARAM)
    assert "too-few-ranks" not in rules(more.alloc(at=2, size=60 * MIB, category=Category.UNSHARDED_PARAM))


def test_replicas_whose_gradients_are_never_reduced() -> None:
    """FSDP1 HYBRID_SHARD without a mesh on one device a node shards over 1 rank and synchronises nothing."""
    for reduced in (False, True):
        run = RunBuilder().set(world_size=4).alloc(at=1, size=MIB)
        run.unit("a", sharding="HYBRID_SHARD", shard_size=2, replicate_size=2, kind=UnitKind.FSDP1)
        run.collective(CollectiveKind.REDUCE_SCATTER, 1, 2)
        if reduced:
            run.collective(CollectiveKind.ALL_REDUCE, 2, 3)
        assert ("replicas-not-reduced" in rules(run)) is not reduced


def test_an_optimizer_that_was_built_before_sharding() -> None:
    """huggingface/accelerate, benchmarks/fsdp2: memory up and no training, the optimizer kept the old parameters."""
    told_of = {"name": "AdamW", "num_params": 291, "num_foreign": 290, "foreign_bytes": 6 * GIB}
    run = RunBuilder().alloc(at=1, size=GIB, category=PARAM).set(extra={"optimizers": [told_of]})
    found = told(run, "optimizer-of-other-params")
    assert found.claim == (
        "AdamW holds 290 parameters that are not in the model, of 291 (6.00 GiB): stepping them trains nothing and "
        "keeps them alive."
    )
    assert (str(found.severity), found.saves_bytes) == ("PROBLEM", 6 * GIB)
    fine = {**told_of, "num_foreign": 0, "foreign_bytes": 0}
    assert "optimizer-of-other-params" not in rules(run.set(extra={"optimizers": [fine]}))
