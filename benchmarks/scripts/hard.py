"""Scripts that are hard on a ledger: tied weights, routed experts, adapters, meshes of two dimensions, and others.

Each function named below makes one job; `hard.py NAME` runs it.
"""

import argparse
import contextlib
import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from sys import path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

path.insert(0, str(Path(__file__).resolve().parents[2]))
path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from benchmarks.scripts import ledger_job
from benchmarks.scripts.ledger_cell import BATCH, CONFIG, CPU, Adapted, blocks
from benchmarks.scripts.ledger_job import Job

import gpt

Batch = Callable[[], Tensor]


class Experts(nn.Module):
    """Top-1 routing: every token goes to the expert its gate likes best, so sizes differ at every step."""

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The chosen expert's output, weighted by its gate; idle experts see one token of weight 0."""
        tokens = x.flatten(0, 1)
        weight, chosen = self.gate(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(tokens[rows]) * weight[rows, None])
            else:
                out = out + expert(tokens[:1]).sum() * 0
        return out.view_as(x)


class Recomputed(nn.Module):
    """A block recomputed in backward, the checkpoint around its unit."""

    def __init__(self, block: nn.Module, *, use_reentrant: bool) -> None:
        super().__init__()
        self.block, self.use_reentrant = block, use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        out: Tensor = checkpoint(self.block, x, use_reentrant=self.use_reentrant)
        return out


def bare() -> gpt.GPT:
    """The model, not yet wrapped."""
    torch.manual_seed(0)
    return gpt.GPT(CONFIG)


def shard(model: Any, **options: Any) -> Any:
    """fully_shard of every block, then of the root."""
    for layer in blocks(model):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def fsdp1(model: Any, **options: Any) -> FullyShardedDataParallel:
    """FSDP1 of every block and of the root."""

    def is_block(module: nn.Module, recurse: bool, **_: Any) -> bool:
        return recurse or isinstance(module, gpt.Block)

    return FullyShardedDataParallel(model, auto_wrap_policy=is_block, use_orig_params=True, device_id=CPU, **options)


def batches(rank: int | None = None) -> Batch:
    """Random tokens, other ones at each call."""
    generator = torch.Generator().manual_seed(dist.get_rank() if rank is None else rank)
    return lambda: torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.seq_len), generator=generator)


def trained(model: Any, *, batch: Batch | None = None, optimizer: Any = None, micro_batches: int = 1) -> Job:
    """The usual loop; with micro-batches, gradients are reduced in the last only."""
    found = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    draw = batch or batches()

    def step(_number: int) -> None:
        for micro in range(micro_batches):
            is_last = micro == micro_batches - 1
            if hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(is_last)
            no_sync = getattr(model, "no_sync", contextlib.nullcontext)
            with contextlib.nullcontext() if is_last else no_sync():
                tokens = draw()
                gpt.next_token_loss(model(tokens), tokens).backward()
            for call in ledger_job.after_backward:
                call()
        found.step()

    return Job(models=(model,), optimizers=(found,), step=step, expected={})


def tied() -> gpt.GPT:
    """The head is the token embedding."""
    model = bare()
    model.lm_head.weight = model.token_embedding.weight
    return model


def moe() -> gpt.GPT:
    """Routed experts in place of every MLP."""
    model = bare()
    for layer in blocks(model):
        layer.mlp = Experts(CONFIG.dim, count=4)
    return model


def adapted() -> gpt.GPT:
    """Frozen, but for adapters in every attention and every MLP."""
    model = bare().requires_grad_(requires_grad=False)
    for layer in blocks(model):
        layer.attention.qkv = Adapted(layer.attention.qkv)
        layer.mlp[0] = Adapted(layer.mlp[0])
    return model


def recomputed(*, use_reentrant: bool) -> Any:
    """The checkpoint is around the unit, so backward runs the unit's whole forward again."""
    model = bare()
    for index, layer in enumerate(blocks(model)):
        model.layers[index] = Recomputed(fully_shard(layer), use_reentrant=use_reentrant)
    return fully_shard(model)


def tensor_parallel() -> Job:
    """2 x 2: blocks split over a tensor parallel mesh, then sharded over the other."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
    model = bare()
    for layer in blocks(model):
        parallelize_module(layer.mlp, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return trained(shard(model, mesh=mesh["shard"]), batch=batches(mesh["shard"].get_local_rank()))


def two_models(wrap: Callable[[nn.Module], Any]) -> Job:
    """A generator and a critic, an optimizer each, both stepped in every iteration."""
    torch.manual_seed(0)
    sizes = (64, 512, 64)
    pair = [nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes))) for _ in range(2)]
    made, critic = (wrap(module) for module in pair)
    optimizers = (torch.optim.Adam(made.parameters()), torch.optim.Adam(critic.parameters()))

    def step(_number: int) -> None:
        noise = torch.randn(64, 64)
        (critic(made(noise).detach()).mean() - critic(torch.randn(64, 64)).mean()).backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        (-critic(made(noise)).mean()).backward()
        optimizers[0].step()

    return Job(models=(made, critic), optimizers=optimizers, step=step, expected={})


def meta_init() -> Job:
    """Built on the meta device, sharded, then materialised."""
    with torch.device("meta"):
        model = gpt.GPT(CONFIG)
    shard(model)
    model.to_empty(device="cpu")
    for module in model.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return trained(model)


def ignored() -> Job:
    """The embeddings are no part of any unit."""
    model = bare()
    kept = {model.token_embedding.weight, model.position_embedding.weight}
    return trained(shard(model, ignored_params=kept))


def clip_and_log() -> Job:
    """Norms clipped, losses and norms kept in lists, an evaluation before every step."""
    model = shard(bare(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    draw, kept = batches(), []

    def step(_number: int) -> None:
        tokens = draw()
        with torch.no_grad():
            kept.append(gpt.next_token_loss(model(tokens), tokens))
        loss = gpt.next_token_loss(model(tokens), tokens)
        loss.backward()
        for call in ledger_job.after_backward:
            call()
        kept.extend([loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), 1.0)])
        optimizer.step()
        schedule.step()

    return Job(models=(model,), optimizers=(optimizer,), step=step, expected={})


def ema() -> Job:
    """A moving average of the shards, kept by the script."""
    model = shard(bare())
    average = [copy.deepcopy(p.detach()) for p in model.parameters()]
    inner = trained(model)

    def step(number: int) -> None:
        inner.step(number)
        with torch.no_grad():
            for mean, param in zip(average, model.parameters(), strict=True):
                mean.lerp_(param, 0.1)

    return Job(models=inner.models, optimizers=inner.optimizers, step=step, expected={})


def data_set() -> Job:
    """All data made before training and kept; a batch is a view of it."""
    data = torch.randint(CONFIG.vocab_size, (512, CONFIG.seq_len))
    order = iter(range(1000))
    return trained(shard(bare()), batch=lambda: data[next(order) * BATCH :][:BATCH])


class Branches(nn.Module):
    """Two towers of which each step uses one, with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Linear(128, 128) for _ in range(2))
        self.norm = nn.BatchNorm1d(128)

    def forward(self, x: Tensor, which: int) -> Tensor:
        """One tower's output."""
        out: Tensor = self.norm(self.towers[which](x))
        return out


def ddp_unused() -> Job:
    """Parameters without gradients in some steps, buffers broadcast in all."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(number: int) -> None:
        model(torch.randn(32, 128), number % 2).pow(2).mean().backward()
        optimizer.step()

    return Job(models=(model,), optimizers=(optimizer,), step=step, expected={})


def ddp_compressed() -> Job:
    """Gradients of DDP reduced in fp16, by a communication hook."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DistributedDataParallel(bare())
    model.register_comm_hook(None, fp16_compress_hook)
    return trained(model)


SCRIPTS: dict[str, Callable[[], Job]] = {
    "tied": lambda: trained(shard(tied())),
    "tied-fsdp1": lambda: trained(fsdp1(tied())),
    "tied-ddp": lambda: trained(DistributedDataParallel(tied())),
    "moe": lambda: trained(shard(moe())),
    "moe-ddp": lambda: trained(DistributedDataParallel(moe())),
    "adapters": lambda: trained(shard(adapted())),
    "offload": lambda: trained(shard(bare(), offload_policy=CPUOffloadPolicy(pin_memory=False)), micro_batches=2),
    "accumulate": lambda: trained(shard(bare()), micro_batches=4),
    "accumulate-fsdp1": lambda: trained(fsdp1(bare()), micro_batches=4),
    "tensor-parallel": tensor_parallel,
    "two-models": lambda: two_models(fully_shard),
    "two-models-ddp": lambda: two_models(DistributedDataParallel),
    "meta-init": meta_init,
    "ignored": ignored,
    "checkpoint-outside": lambda: trained(recomputed(use_reentrant=False)),
    "checkpoint-reentrant": lambda: trained(recomputed(use_reentrant=True)),
    "clip-and-log": clip_and_log,
    "ema": ema,
    "data-set": data_set,
    "ddp-unused": ddp_unused,
    "ddp-compressed": ddp_compressed,
    "compile": lambda: trained(torch.compile(shard(bare()), backend="aot_eager")),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SCRIPTS)
    ledger_job.add_arguments(parser)
    arguments = parser.parse_args()
    ledger_job.main(SCRIPTS[arguments.name], arguments)
