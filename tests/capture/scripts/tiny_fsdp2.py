"""Two Linear units under FSDP2; can be told to end badly."""

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument(
    "--end", default="well", choices=["well", "raise", "exit", "kill", "os-exit", "raise-in-forward", "hang"]
)
parser.add_argument("--at-step", type=int, default=2)
parser.add_argument("--at-rank", type=int, default=1)
args = parser.parse_args()


class Odd(nn.Module):
    """Raises inside forward when told to."""

    fail = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Odd.fail:
            raise ValueError("forward went wrong")
        return x


dist.init_process_group("gloo", timeout=timedelta(seconds=4 if args.end == "hang" else 1800))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), Odd(), nn.Linear(16, 8))
fully_shard(model[0])
fully_shard(model[2])
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(args.steps):
    is_it = args.end != "well" and step == args.at_step and dist.get_rank() == args.at_rank
    if is_it and args.end == "raise":
        raise RuntimeError("planned failure")
    if is_it and args.end == "exit":
        sys.exit(7)
    if is_it and args.end == "os-exit":
        os._exit(5)
    if is_it and args.end == "hang":
        time.sleep(600)
    if is_it and args.end == "kill":
        os.kill(os.getpid(), 9)
    Odd.fail = is_it and args.end == "raise-in-forward"
    loss = model(torch.ones(4, 8) * (step + 1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
