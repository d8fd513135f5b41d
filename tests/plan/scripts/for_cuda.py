"""A script that knows nothing but CUDA: DDP, FSDP1 or FSDP2 of a small model."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel


def main(kind: str) -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", device_id=device)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    if kind == "ddp":
        model = DistributedDataParallel(model.cuda(), device_ids=[local_rank], output_device=local_rank)
    elif kind == "fsdp1":
        model = FullyShardedDataParallel(model, device_id=torch.cuda.current_device())
    else:
        model.to("cuda")
        fully_shard(model, mesh=init_device_mesh("cuda", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for _ in range(4):
        x = torch.randn(8, 64, device="cuda").pin_memory().to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        print(f"{loss.item():.3f} {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")


if __name__ == "__main__":
    main(sys.argv[1])
