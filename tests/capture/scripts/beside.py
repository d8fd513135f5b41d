"""What real scripts do beside forward, backward and step, each by its word; mp.spawn starts the ranks, or torchrun."""

import os
import socket
import sys
from collections import Counter

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

WIDTH, STEPS, MICRO = 64, 4, 2


class Block(nn.Module):
    """Recomputed in backward when told to."""

    def __init__(self, *, recompute: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.recompute = recompute

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=False) if self.recompute else self.body(x)


def save_and_load(net: nn.Module, optimizers: list[torch.optim.Optimizer], folder: str) -> None:
    """Through DCP, and go on with what was loaded."""
    model_state, optimizer_state = get_state_dict(net, optimizers)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.save(state, checkpoint_id=folder)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(net, optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def step_in_backward(net: nn.Module) -> None:
    """An optimizer for every parameter, stepped by its gradient's hook."""
    for parameter in net.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01, momentum=0.9)

        def step(_: torch.Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)


def train(words: list[str], folder: str) -> list[float]:
    """The losses of four steps."""
    torch.manual_seed(0)
    net: nn.Module = nn.Sequential(*(Block(recompute="recompute" in words) for _ in range(2)))
    for block in net:
        fully_shard(block)
    fully_shard(net)
    if "compile" in words:
        net = torch.compile(net, backend="aot_eager")
    parts = [list(net.parameters())]
    if "optimizers" in words:
        parts = [[p for p in net.parameters() if p.ndim == 2], [p for p in net.parameters() if p.ndim == 1]]
    optimizers = [torch.optim.AdamW(part, lr=0.01) for part in parts]
    if "in-backward" in words:
        step_in_backward(net)
        optimizers = []
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in optimizers if "scheduler" in words]
    scaler = torch.amp.GradScaler("cpu", enabled="scaler" in words, init_scale=4.0)
    micro = MICRO if "accumulate" in words else 1
    losses = []
    for step in range(STEPS):
        for part in range(micro):
            net.set_requires_gradient_sync(part == micro - 1)
            loss = net(torch.full((8, WIDTH), 0.1 * (step + part + 1))).pow(2).mean()
            scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        if optimizers:
            scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        for scheduler in schedulers:
            scheduler.step()
        if "dcp" in words and step == 1:
            save_and_load(net, optimizers, folder)
        losses.append(loss.item())
    return losses


def main(rank: int, port: int, words: list[str], folder: str) -> None:
    """One rank."""
    if port:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo")
    events: Counter[str] = Counter()
    if "profiler" in words:
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=0, active=1)) as mine:
            losses = train(words, folder)
        events.update(event.key for event in mine.key_averages() if event.key.startswith("FSDP::"))
    else:
        losses = train(words, folder)
    if dist.get_rank() == 0:
        print(losses, sorted(events), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    scratch, *told = sys.argv[1:]
    if "RANK" in os.environ:
        main(-1, 0, told, scratch)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free_port = probe.getsockname()[1]
        mp.spawn(main, args=(free_port, told, scratch), nprocs=2)
