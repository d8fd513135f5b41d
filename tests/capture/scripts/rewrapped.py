"""Calls that only FSDP knows, in the ways scripts make them; one call at the end that has no meaning under DDP."""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["fsdp1", "fsdp2", "ddp"])
parser.add_argument("--call", default="")
args = parser.parse_args()


class Block(nn.Module):
    """One Linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
plain = nn.Sequential(Block(), Block(), nn.Linear(8, 4))
net: nn.Module
optimizer: torch.optim.Optimizer
if args.kind == "fsdp1":
    net = FullyShardedDataParallel(
        plain,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16) if args.call == "bf16" else None,
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
elif args.kind == "fsdp2":
    for block in plain[:2]:
        fully_shard(block)
    net = fully_shard(plain)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
else:
    if args.call == "early":
        optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    net = DistributedDataParallel(plain)
    if args.call == "zero":
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01)
    elif args.call != "early":
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

for step in range(3):
    for micro in range(2):
        is_last = micro == 1
        batch = torch.ones(4, 8) * (step + micro + dist.get_rank())
        if args.kind == "fsdp2":
            net.set_requires_gradient_sync(is_last)
            loss = net(batch).pow(2).mean()
            loss.backward()
        elif is_last:
            loss = net(batch).pow(2).mean()
            loss.backward()
        else:
            with net.no_sync():
                loss = net(batch).pow(2).mean()
                loss.backward()
    clip = net.clip_grad_norm_ if args.kind == "fsdp1" else partial(nn.utils.clip_grad_norm_, net.parameters())
    norm = clip(0.5)
    if args.kind == "fsdp2":
        norm = norm.full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.5f} norm {norm:.5f}", flush=True)

if args.kind == "fsdp1":
    assert isinstance(net, FullyShardedDataParallel)
    assert isinstance(net.module, nn.Sequential)
    with FullyShardedDataParallel.summon_full_params(net):
        shapes = sorted(tuple(p.shape) for p in net.parameters())
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT):
        names = sorted(net.state_dict())
    if args.call == "sharded":
        with FullyShardedDataParallel.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
            net.state_dict()
if args.kind == "fsdp2":
    assert isinstance(net, FSDPModule)
    shapes = sorted(tuple(p.full_tensor().shape) for p in net.parameters())
    names = sorted(net.state_dict())
    if args.call == "placements":
        print(next(net.parameters()).placements)
    if args.call == "hook":
        net.set_all_reduce_hook(lambda tensor: None)
if args.kind == "ddp":
    shapes = sorted(tuple(p.shape) for p in net.parameters())
    names = sorted(net.state_dict())
    if args.call == "comm-hook":
        net.register_comm_hook(None, lambda state, bucket: bucket.buffer())
if dist.get_rank() == 0:
    print(names, shapes, flush=True)
dist.destroy_process_group()
