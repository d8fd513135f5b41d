"""Each rule fires on a run built to have the fault, says the value, and is silent on a healthy one.

Numbers with a link are those of public reports: the same cause, built small.
"""

from analysis.findings.faults import GIB, GRAD, MB, MIB, PARAM, STATE, gib, told
from builder import RunBuilder

from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, Strategy


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
