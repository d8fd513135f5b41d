"""Four blocks under FSDP2, and three ways in which a change can cost memory or traffic without anybody noticing."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--keep-unsharded", type=int, metavar="BLOCK", help="this block is not resharded after forward")
parser.add_argument("--batch", type=int, default=20)
parser.add_argument("--log-norm", action="store_true", help="one more process group, for an all-reduce a step")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(4)]
model = nn.Sequential(*blocks)
for number, block in enumerate(model):
    fully_shard(block, reshard_after_forward=number != args.keep_unsharded)
fully_shard(model)
logging_group = dist.new_group(group_desc="norms") if args.log_norm else None
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(5):
    x = torch.randn(args.batch * 32, 256)
    loss = model(x).pow(2).mean()
    loss.backward()
    if logging_group is not None:
        dist.all_reduce(torch.ones(1), group=logging_group)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
