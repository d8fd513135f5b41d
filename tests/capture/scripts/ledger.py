"""One small model, trained in the ways that once gave the ledger a wrong category; the mode says which."""

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("mode")
mode = parser.parse_args().mode

WIDTH, STEPS = 64, 3


class Block(nn.Module):
    """Two Linear layers; 'recompute-inside' checkpoints what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if mode == "recompute-inside":
            return checkpoint(self.body, x, use_reentrant=False)
        return self.body(x)


class Net(nn.Module):
    """A scale that no unit has, two blocks, a head; 'recompute-outside' checkpoints whole units."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        for block in self.blocks:
            if mode in ("recompute-outside", "recompute-reentrant"):
                x = checkpoint(block, x, use_reentrant=mode == "recompute-reentrant")
            else:
                x = block(x)
        return self.head(x)


def wrapped(model: Net) -> Any:
    """The model as the mode wants it."""
    if mode == "ddp-hook":
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, fp16_compress_hook)
        return ddp
    if mode == "ddp-no-sync":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    if mode == "no-shard":
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        strategy = ShardingStrategy.NO_SHARD
        cpu = torch.device("cpu")
        return FullyShardedDataParallel(model, sharding_strategy=strategy, mixed_precision=mixed, device_id=cpu)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model, ignored_params={model.scale})


dist.init_process_group("gloo")
torch.manual_seed(0)
net = wrapped(Net())
average = [torch.clone(getattr(p, "_local_tensor", p).detach()) for p in net.parameters()]
frozen = nn.Linear(WIDTH, WIDTH, bias=False)
frozen.weight = nn.Parameter(frozen.weight.detach().clone(), requires_grad=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(STEPS):
    x = torch.full((8, WIDTH), float(step + 1))
    if mode in ("no-shard", "ddp-no-sync"):
        with net.no_sync():
            net(x).pow(2).mean().backward()
    net(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
