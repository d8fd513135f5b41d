"""Each rule fires on a run built to have the fault, says the value, and is silent on a healthy one.

Numbers with a link are those of public reports: the same cause, built small.
"""

import re
from pathlib import Path

import pytest
from builder import RunBuilder

from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, CollectiveKind, Phase, SpanKind, Strategy, UnitKind

MIB, GIB = 1 << 20, 1 << 30
MB, GB = 10**6, 10**9
PARAM, STATE, GRAD = Category.PARAM, Category.OPTIMIZER_STATE, Category.GRAD


def gib(number: float) -> int:
    return round(number * GIB)


def told(run: RunBuilder, rule: str) -> Finding:
    """The one finding of a rule."""
    [found] = [f for f in findings(run.build()) if f.rule == rule]
    return found


def rules(run: RunBuilder) -> list[str]:
    return [f.rule for f in findings(run.build())]


def healthy() -> RunBuilder:
    """Sharded over 8 ranks in equal units, three steps, states dominate, each block gathered for its use only."""
    run = RunBuilder().set(world_size=8)
    run.unit("", unsharded=MIB // 64, numel=4, shard_size=8)
    for block in range(8):
        run.unit(f"layers.{block}", unsharded=MIB, numel=256 << 10, shard_size=8, trainable_numel=256 << 10)
    run.step(-1, 0, 10).phase(Phase.SETUP, 0, 10, step=-1)
    run.alloc(at=1, size=60 * MIB, category=PARAM).alloc(at=5, size=120 * MIB, category=STATE)
    for step in range(3):
        at = 10 + 100 * step
        run.step(step, at, at + 100)
        run.phase(Phase.FORWARD, at, at + 50, step=step).phase(Phase.BACKWARD, at + 50, at + 90, step=step)
        run.phase(Phase.OPTIMIZER, at + 90, at + 100, step=step)
        run.alloc(at=at + 2, free=at + 60, size=2 * MIB, category=Category.ACTIVATION, unit=1)
        run.alloc(at=at + 2, free=at + 60, size=2 * MIB, category=Category.ACTIVATION, unit=2)
        run.alloc(at=at + 3, free=at + 8, size=MIB, category=Category.UNSHARDED_PARAM, unit=1)
        run.span(1, SpanKind.FORWARD, at + 2, at + 9, step=step)
        run.span(1, SpanKind.UNSHARDED, at + 3, at + 8, size=MIB, step=step)
        run.alloc(at=at + 70, free=at + 99, size=60 * MIB, category=GRAD)
    return run


def test_a_healthy_run_has_nothing_to_say() -> None:
    assert rules(healthy()) == []


def test_without_allocator_events_nothing_is_said() -> None:
    assert rules(RunBuilder().unit("a")) == []


def two_steps(first: int, states: int) -> RunBuilder:
    """Step 0 peaks before its optimizer makes the states, step 1 has them."""
    run = RunBuilder().step(-1, 0, 10).step(0, 10, 100).step(1, 100, 200)
    run.alloc(at=20, free=90, size=first).alloc(at=95, size=states, category=STATE)
    return run.alloc(at=120, free=190, size=first)


def test_optimizer_states_born_at_the_end_of_the_first_step() -> None:
    """pytorch/torchtitan#929: Llama3-8B on 8 GPUs, 40.13 GiB in step 1, 47.61 from step 10: 8.03e9 x 8 B / 8."""
    states = 8_030_000_000 * 8 // 8
    found = told(two_steps(gib(40.13), states), "states-born-in-first-step")
    assert found.claim == (
        "Step 0 allocates 7.48 GiB of optimizer state at its end: its peak, 40.13 GiB, understates the 47.61 GiB of "
        "step 1."
    )
    assert found.evidence["optimizer_state_bytes"] == states


def test_what_of_the_rise_of_reserved_memory_is_optimizer_state() -> None:
    """pytorch/pytorch#132445: 69.46 to 77.29 GiB reserved, 7.48 of the 7.83 GiB are states."""
    run = two_steps(gib(60), 8_030_000_000)
    run.reserved_by_step({-1: gib(1), 0: gib(69.46), 1: gib(77.29)})
    assert told(run, "states-born-in-first-step").claim.endswith(
        "Reserved rises by 7.83 GiB: 7.48 GiB of it are these states, 359.92 MiB the allocator's."
    )


def test_gradients_stay_unsharded_between_micro_batches() -> None:
    """pytorch/pytorch#160320, huggingface/accelerate#2531: no_sync keeps whole gradients."""
    run = RunBuilder().step(0, 0, 100)
    for begin, phase in ((0, Phase.FORWARD), (20, Phase.BACKWARD), (40, Phase.FORWARD), (60, Phase.BACKWARD)):
        run.phase(phase, begin, begin + 20)
    run.alloc(at=25, free=70, size=512 * MIB, category=Category.UNSHARDED_GRAD)
    run.alloc(at=1, size=512 * MIB, category=PARAM)
    found = told(run, "unsharded-gradients-held")
    assert found.claim.startswith("512.00 MiB of gradients are unsharded since micro-batch 0 of step 0:")
    assert "sync_each_batch=True" in found.action
    assert found.saves_bytes == 512 * MIB


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


def reserved(run: RunBuilder, size: int, *, stream: int = 0, address: int = 1 << 40) -> None:
    run.row("segments", address=address, size_bytes=size, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=stream, pool="0,0", is_expandable=False)  # fmt: skip


def test_freed_but_held_by_a_stream_is_not_activations() -> None:
    """pytorch/torchtitan#735: 13,975 MiB allocated, 18,803 MiB at its peak: record_stream holds the rest."""
    run = RunBuilder().set(device_type="cuda").alloc(at=1, size=13_975 * MIB)
    reserved(run, 4828 * MIB, stream=22)
    run.row("pending_frees", address=1 << 40, size_bytes=4828 * MIB, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=22, pool="0,0")  # fmt: skip
    run.totals(reserved=20_000 * MIB, active=18_803 * MIB)
    found = told(run, "pending-frees")
    assert found.claim == (
        "4.71 GiB are freed but held by stream 22: 18.36 GiB active where tensors hold 13.65 GiB. They are not "
        "activations."
    )
    assert "TORCH_NCCL_AVOID_RECORD_STREAMS=1" in found.action
    assert found.saves_bytes == 4828 * MIB


def test_cached_in_pieces_and_for_another_stream() -> None:
    run = RunBuilder().set(device_type="cuda").alloc(at=1, size=GIB)
    for piece in range(8):
        reserved(run, 256 * MIB, address=(1 << 40) + piece * GIB)
    reserved(run, GIB, stream=7, address=1 << 50)
    run.totals(reserved=4 * GIB, active=GIB)
    elsewhere, pieces = told(run, "cached-elsewhere"), told(run, "fragmentation")
    assert elsewhere.claim == "1.00 GiB are cached for stream 7 pool 0,0 and cannot serve stream 0."
    assert pieces.claim == "3.00 GiB of 4.00 GiB reserved are cached, and the largest piece is 1.00 GiB."
    assert pieces.saves_bytes == 2 * GIB
    assert "expandable_segments:True" in pieces.action


def test_what_nvidia_smi_shows_beyond_pytorch() -> None:
    """pytorch/pytorch#147179: 60 live, 22 cached, 96 GB in nvidia-smi; NVIDIA/nccl#964: some 0.6 GB a communicator."""
    run = RunBuilder().set(device_type="cuda").alloc(at=5, size=gib(60))
    run.totals(reserved=gib(82), active=gib(60)).device_sample(5, device_used_bytes=gib(96))
    run.collective(CollectiveKind.ALL_GATHER, 1, 2, group="1", group_description="mesh_shard", group_size=4)
    run.collective(CollectiveKind.ALL_REDUCE, 2, 3, group="2", group_description="mesh_replicate", group_size=2)
    assert told(run, "outside-pytorch").claim == (
        "The device has 96.00 GiB in use: 60.00 GiB live + 22.00 GiB cached + 14.00 GiB outside PyTorch's allocator; "
        "2 communicators (mesh_shard 1, 4 ranks, mesh_replicate 2, 2 ranks)."
    )


def test_other_processes_on_the_device() -> None:
    run = RunBuilder().set(device_type="cuda").alloc(at=5, size=GIB).totals(reserved=GIB, active=GIB)
    run.device_sample(5, device_used_bytes=4 * GIB, process_used_bytes=2 * GIB)
    assert told(run, "other-processes").claim == (
        "Other processes use 2.00 GiB of this rank's device (50.0 % of what is in use)."
    )


def test_buffers_of_reductions_are_not_gradients() -> None:
    """facebookresearch/fairscale#627: 11190 MB where 5478 were expected: 5712 MB of reduce-scatter buckets."""
    run = RunBuilder().alloc(at=1, size=5478 * MB, category=GRAD)
    run.alloc(at=2, size=5712 * MB, category=Category.REDUCE_SCATTER)
    found = told(run, "communication-buffers")
    assert found.claim == (
        "Communication buffers hold 5.32 GiB at the peak (0 B of all-gathers, 5.32 GiB of gradient reductions): they "
        "are not parameters or gradients."
    )
    assert found.evidence["reduce_scatter_bytes"] == 5712 * MB


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


def test_temporaries_of_a_foreach_optimizer() -> None:
    """volcengine/verl#5364: 31.16 GB of Adam states, and 15.58 GB more inside the step: 4 B for each parameter."""
    params = 3_895_000_000
    run = RunBuilder().alloc(at=1, size=4 * params, category=PARAM).alloc(at=2, size=8 * params, category=STATE)
    run.alloc(at=3, size=4 * params, category=Category.OPTIMIZER_TEMPORARY)
    found = told(run, "optimizer-temporaries")
    assert found.claim.startswith(
        "optimizer.step allocates 14.51 GiB of temporaries (4.0 B for each 4 B of parameter) in addition to 29.02 GiB "
        "of optimizer state"
    )
    assert found.saves_bytes == 4 * params == 15_580_000_000


def test_activations_that_no_sharding_divides() -> None:
    run = RunBuilder().unit("a").unit("b").alloc(at=1, size=2 * GIB, category=PARAM)
    run.alloc(at=2, size=3 * GIB, unit=0).alloc(at=3, size=5 * GIB, unit=1)
    found = told(run, "activations-dominate")
    assert found.claim.startswith("Activations are 8.00 GiB of the 10.00 GiB peak (80.0 %)")
    assert (found.saves_bytes, found.is_estimate) == (3 * GIB, True)


def test_buckets_that_hold_each_gradient_again() -> None:
    run = RunBuilder(strategy=Strategy.DDP).alloc(at=1, size=GIB, category=GRAD)
    run.alloc(at=2, size=GIB, category=Category.BUCKET)
    found = told(run, "buckets-duplicate-gradients")
    assert found.claim == "DDP's buckets hold 1.00 GiB beside 1.00 GiB of gradients: each gradient is there twice."
    assert found.saves_bytes == GIB


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


def test_checkpoints_that_need_more_than_training() -> None:
    run = RunBuilder().phase(Phase.FORWARD, 0, 50).phase(Phase.CHECKPOINT, 50, 100)
    run.alloc(at=1, size=GIB, category=PARAM).alloc(at=60, free=70, size=GIB, category=Category.TEMPORARY)
    assert told(run, "checkpoint-spike").claim == (
        "The peak is in a checkpoint: 2.00 GiB; training itself needs 1.00 GiB."
    )


def test_a_leak_and_its_call_site() -> None:
    run = RunBuilder()
    for step in range(6):
        run.step(step, 100 * step, 100 * step + 100).alloc(at=100 * step + 1, size=MIB, operator="aten::clone")
    found = told(run, "leak")
    assert found.claim == (
        "Live bytes of activations grow by 1.00 MiB a step, from aten::clone in forward: 2.00 MiB after step 1, "
        "6.00 MiB after step 5."
    )
    assert str(found.severity) == "PROBLEM"


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


def test_every_rule_has_a_paragraph_and_every_paragraph_a_rule() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs" / "findings.md"
    paragraphs = re.findall(r"^### ([a-z0-9-]+)$", docs.read_text(encoding="utf-8"), re.M)
    source = Path(__file__).resolve().parents[3] / "profiler" / "fsdp_profile" / "analysis" / "findings" / "rules"
    names = [n for p in sorted(source.glob("*.py")) for n in re.findall(r'rule="([a-z0-9-]+)"', p.read_text())]
    assert sorted(paragraphs) == sorted(names)
    assert len(set(names)) == len(names)
