"""One small model, trained in the ways that change when units gather, reshard and reduce."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("mode")
mode = parser.parse_args().mode

WIDTH, STEPS, MICRO = 64, 3, 2


class Block(nn.Module):
    """Two Linear layers; recomputed in backward when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if mode == "checkpoint":
            return checkpoint(self.body, x, use_reentrant=False)
        return self.body(x)


class Net(nn.Module):
    """Two blocks (one of them twice under 'shared') and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (*self.blocks, *([self.blocks[0]] if mode == "shared" else [])):
            x = block(x)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
net: nn.Module = Net()
if mode.startswith("fsdp1"):
    strategy = ShardingStrategy.SHARD_GRAD_OP if mode == "fsdp1-grad-op" else ShardingStrategy.FULL_SHARD
    net = FullyShardedDataParallel(
        net,
        sharding_strategy=strategy,
        auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or isinstance(module, Block),
        use_orig_params=mode != "fsdp1-flat",
        device_id=torch.device("cpu"),
        forward_prefetch=mode == "fsdp1-prefetch",
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if mode == "fsdp1-bf16"
        else None,
    )
elif mode == "ddp":
    net = DistributedDataParallel(net)
else:
    reshard = {"no-reshard": False, "reshard-int": 2}.get(mode, True)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mode == "bf16" else MixedPrecisionPolicy()
    for part in (*net.blocks, *([net.head] if mode == "all-wrapped" else [])):
        fully_shard(part, reshard_after_forward=reshard, mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    if mode == "prefetch":
        net.blocks[0].set_modules_to_forward_prefetch([net.blocks[1]])
        net.blocks[1].set_modules_to_backward_prefetch([net.blocks[0]])
if mode == "compile":
    net = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(STEPS):
    x = torch.full((8, WIDTH), float(step + 1))
    if mode == "eval":
        with torch.no_grad():
            net(x)
    if mode == "manual":
        net.unshard()
        net.reshard()
    if mode == "two-forwards":
        loss = net(x).pow(2).mean() + net(x + 1).pow(2).mean()
        loss.backward()
    elif mode == "accumulate":
        for micro in range(MICRO):
            net.set_requires_gradient_sync(micro == MICRO - 1)
            loss = net(x).pow(2).mean()
            loss.backward()
    elif mode == "fsdp1-no-sync":
        with net.no_sync():
            net(x).pow(2).mean().backward()
        loss = net(x).pow(2).mean()
        loss.backward()
    else:
        loss = net(x).pow(2).mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
