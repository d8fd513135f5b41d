"""A DDP script as people write them: a sampler, a GradScaler, clipping, checks and a log that read values."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    model = DistributedDataParallel(model.to("cpu").double().float())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    data = TensorDataset(torch.randn(512, 64), torch.from_numpy(np.random.randint(0, 10, 512)))
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data), num_workers=2)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.to("cpu", non_blocking=True)), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
        if not torch.isfinite(loss):
            raise SystemExit("the loss is not finite")
        total = torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {"loss": (total[0] / total[1]).item()})
        print(f"loss {everyone[0]['loss']:.3f} norm {norm:.3f}")
    raise AssertionError("a simulation ends after its steps")


if __name__ == "__main__":
    main()
