"""A small model with one of the faults that findings name."""

import os
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

mode = sys.argv[1]
WIDTH, STEPS = 256, 6


class Block(nn.Module):
    """A frozen Linear layer when told to, and a trainable one."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.adapter = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.base.weight.requires_grad_(mode not in ("mixed-frozen", "frozen"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.adapter(torch.relu(self.base(x)))


def is_block(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    """Wrap each block."""
    return recurse or isinstance(module, Block)


dist.init_process_group("gloo")
torch.manual_seed(0)
net: nn.Module = nn.Sequential(*(Block() for _ in range(4)))
fsdp1 = partial(FullyShardedDataParallel, device_id=torch.device("cpu"), use_orig_params=True)
early = torch.optim.AdamW(net.parameters()) if mode == "optimizer-first" else None
if mode in ("mixed-frozen", "no-sync"):
    net = fsdp1(net, auto_wrap_policy=is_block)
elif mode == "no-wrap":
    net = fsdp1(net)
else:
    for block in net:
        fully_shard(block)
    fully_shard(net)
optimizer = early or torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
kept = []
for step in range(STEPS):
    x = torch.full((8, WIDTH), float(step + 1))
    if mode == "no-sync":
        with net.no_sync():
            net(x).pow(2).mean().backward()
    out = net(x)
    out.pow(2).mean().backward()
    if mode == "leak":
        kept.append(out.detach().clone())
    optimizer.step()
    optimizer.zero_grad()
    if mode == "checkpoint" and step % 2:
        whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        torch.save(whole, os.devnull)
        del whole
    if mode == "evaluate" and step % 2:
        with torch.no_grad():
            score = net(x).mean()
dist.destroy_process_group()
