"""Rank 1 runs out of memory in the second forward of a small model under fully_shard (or DDP).

With "whole" every rank does, if it keeps whole parameters: a model that does not fit under DDP.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

ASKED_BYTES = 1 << 44
WIDTH = 64


class Block(nn.Module):
    """A Linear layer that, when told to, asks for more than any machine has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.is_greedy = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.linear(x))
        if self.is_greedy:
            torch.empty(ASKED_BYTES, dtype=torch.uint8)
        return out


dist.init_process_group("gloo")
torch.manual_seed(0)
net: nn.Module = nn.Sequential(Block(), Block())
blocks = list(net)
if "ddp" in sys.argv:
    net = DistributedDataParallel(net)
else:
    for block in blocks:
        fully_shard(block)
    fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters())
is_whole = not hasattr(next(net.parameters()), "_local_tensor")
for step in range(3):
    blocks[1].is_greedy = step == 1 and (is_whole if "whole" in sys.argv else dist.get_rank() == 1)
    net(torch.full((256, WIDTH), 1.0)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
