"""Four units under FSDP2; one rank sleeps in the forward of one of them in every step."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--rank", type=int, default=1)
parser.add_argument("--unit", type=int, default=1)
parser.add_argument("--ms", type=float, default=50)
args = parser.parse_args()


class Block(nn.Module):
    """A Linear that may be slow."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == args.rank and self.number == args.unit:
            time.sleep(args.ms / 1000)
        return self.linear(x)


class Model(nn.Module):
    """Four blocks in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Block(number) for number in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Model()
for block in model.layers:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _step in range(args.steps):
    model(torch.ones(4, 64)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
