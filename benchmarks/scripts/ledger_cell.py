"""One cell of the ledger matrix: a small GPT, wrapped, typed and trained as the flags say.

Every parameter's first dimension divides by the ranks, so shards carry no padding and the states have closed forms.
"""

import argparse
import contextlib
from pathlib import Path
from sys import path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.nn.parallel import DistributedDataParallel

path.insert(0, str(Path(__file__).resolve().parents[2]))
path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from benchmarks.scripts import ledger_job

import gpt

CONFIG = gpt.GPTConfig(vocab_size=256, seq_len=64, dim=64, num_layers=4, num_heads=4)
BATCH = 2
LORA_RANK = 4
CPU = torch.device("cpu")

FSDP1_STRATEGIES = {
    "full": ShardingStrategy.FULL_SHARD,
    "grad-op": ShardingStrategy.SHARD_GRAD_OP,
    "no-shard": ShardingStrategy.NO_SHARD,
    "hybrid": ShardingStrategy.HYBRID_SHARD,
}
WRAPS = (
    *(f"fsdp1-{strategy}-{params}" for strategy in FSDP1_STRATEGIES for params in ("orig", "flat")),
    "fsdp2", "fsdp2-no-reshard", "fsdp2-int", "hsdp", "ddp", "ddp-view",
)  # fmt: skip
VARIANTS = ("plain", "checkpoint", "accumulate", "no-sync", "lora", "offload")


class Adapted(nn.Module):
    """A frozen linear layer and a trainable low-rank update beside it (LoRA)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, LORA_RANK, bias=False)
        self.up = nn.Linear(LORA_RANK, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The frozen layer's output plus the update."""
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def blocks(model: gpt.GPT) -> list[Any]:
    """The model's blocks."""
    return list(model.layers)


def build(variant: str) -> gpt.GPT:
    """The model, not yet wrapped."""
    torch.manual_seed(0)
    model = gpt.GPT(CONFIG)
    if variant == "lora":
        model.requires_grad_(requires_grad=False)
        for layer in blocks(model):
            layer.attention.qkv = Adapted(layer.attention.qkv)
    return model


def wrap(model: gpt.GPT, how: str, dtype: str, variant: str) -> nn.Module:
    """The model under a strategy; checkpointing wraps the blocks inside their unit."""
    if how.startswith("fsdp1"):
        return _fsdp1(model, how, dtype, variant)
    if variant == "checkpoint":
        _checkpoint(model)
    if how.startswith("ddp"):
        return DistributedDataParallel(model, gradient_as_bucket_view=how == "ddp-view")
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    if how == "hsdp":
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    options: dict[str, Any] = {"mesh": mesh}
    if dtype == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options["offload_policy"] = CPUOffloadPolicy(pin_memory=False) if variant == "offload" else OffloadPolicy()
    reshard = {"fsdp2-no-reshard": False, "fsdp2-int": 2}.get(how, True)
    for layer in blocks(model):
        fully_shard(layer, reshard_after_forward=reshard, **options)
    fully_shard(model, **options)
    return model


def _fsdp1(model: gpt.GPT, how: str, dtype: str, variant: str) -> nn.Module:
    _, strategy, params = how.replace("-op", "_op").replace("no-", "no_").split("-")
    flat = params == "flat"
    # A flat parameter is trainable or frozen as a whole: with adapters, these are units of their own.
    units: tuple[type[nn.Module], ...] = (gpt.Block,)

    def is_unit(module: nn.Module, recurse: bool, **_: Any) -> bool:
        adapter = flat and variant == "lora" and isinstance(module, nn.Linear) and LORA_RANK in module.weight.shape
        return recurse or isinstance(module, units) or adapter

    mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    wrapped = FullyShardedDataParallel(
        model,
        sharding_strategy=FSDP1_STRATEGIES[strategy.replace("_", "-")],
        auto_wrap_policy=is_unit,
        use_orig_params=not flat,
        mixed_precision=mixed if dtype == "bf16" else None,
        device_mesh=init_device_mesh("cpu", (2, dist.get_world_size() // 2)) if strategy == "hybrid" else None,
        device_id=CPU,
    )
    if variant == "checkpoint":
        _checkpoint(wrapped)
    return wrapped


def _checkpoint(model: nn.Module) -> None:
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, gpt.Block))


def expected_states(model: gpt.GPT, how: str) -> dict[str, int]:
    """Closed forms of one rank's states, for fp32 parameters under AdamW: P/N, T/N and 2T/N."""
    size = dist.get_world_size()
    shards = {"ddp": 1, "ddp-view": 1, "hsdp": size // 2}.get(how, size)
    if how.startswith("fsdp1"):
        shards = 1 if "no-shard" in how else size // 2 if "hybrid" in how else size
    numel = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    with_grad = trainable
    if how.endswith("orig") and trainable < numel:
        # One gradient a flat parameter: where a part of it is trainable, frozen elements have gradients too.
        with_grad = sum(p.numel() for p in model.layers.parameters())
    return {
        "PARAM": 4 * numel // shards,
        "GRAD": 4 * with_grad // shards,
        "OPTIMIZER_MOMENTS": 8 * trainable // shards,
    }


def make_job(args: argparse.Namespace) -> ledger_job.Job:
    """The job of one cell."""
    bare = build(args.variant)
    expected = expected_states(bare, args.wrap)
    model = wrap(bare, args.wrap, args.dtype, args.variant)
    if args.wrap.endswith("orig") and args.variant == "lora":
        # A rank's share of the adapters depends on where the flat parameter is cut.
        expected["OPTIMIZER_MOMENTS"] = 8 * sum(p.numel() for p in model.parameters() if p.requires_grad)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    generator = torch.Generator().manual_seed(dist.get_rank())
    micro_batches = 2 if args.variant in ("accumulate", "no-sync") else 1
    autocast = args.dtype == "bf16" and args.wrap.startswith("ddp")

    def step(_number: int) -> None:
        for micro in range(micro_batches):
            tokens = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.seq_len), generator=generator)
            with _sync(model, args.variant != "no-sync" or micro == micro_batches - 1):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = gpt.next_token_loss(model(tokens), tokens)
                loss.backward()
            for call in ledger_job.after_backward:
                call()
        optimizer.step()

    return ledger_job.Job(models=(model,), optimizers=(optimizer,), step=step, expected=expected)


def _sync(model: Any, is_wanted: bool) -> contextlib.AbstractContextManager[Any]:
    """Gradients are reduced in this micro-batch, or not."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(is_wanted)
    elif not is_wanted:
        no_sync: contextlib.AbstractContextManager[Any] = model.no_sync()
        return no_sync
    return contextlib.nullcontext()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrap", choices=WRAPS, required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    ledger_job.add_arguments(parser)
    arguments = parser.parse_args()
    ledger_job.main(lambda: make_job(arguments), arguments)
