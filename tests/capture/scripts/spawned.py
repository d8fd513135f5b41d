"""DDP as many tutorials start it: torch.multiprocessing, rank and world size as arguments, no environment."""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(rank: int, world_size: int, port: int, end: str, steps: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        loss = model(torch.full((8, 64), float(step + 1))).pow(2).mean()
        loss.backward()
        if end == "raise" and rank == 1 and step == 1:
            raise RuntimeError("planted")
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", choices=["spawn", "fork"], default="spawn")
    parser.add_argument("--end", default="")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="of each job, one after the other")
    args = parser.parse_args()
    for ranks in args.ranks:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free_port = probe.getsockname()[1]
        arguments = (ranks, free_port, args.end, args.steps)
        if args.start == "spawn":
            mp.spawn(main, args=arguments, nprocs=ranks)
        else:
            mp.start_processes(main, args=arguments, nprocs=ranks, start_method="fork")
