"""DDP training that does what real scripts do beside it."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

parser = argparse.ArgumentParser()
parser.add_argument("mode")
mode = parser.parse_args().mode
STEPS = 12
calls = {"backward": 0, "all_reduce": 0}


def say(*words):
    """One rank prints: the lines of two would run into each other."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def counted(name, function):
    def wrapper(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    return wrapper


dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
net = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
if mode == "patches":
    torch.autograd.backward = counted("backward", torch.autograd.backward)
    dist.all_reduce = counted("all_reduce", dist.all_reduce)


def step(number):
    loss = net(torch.full((4, 64), float(number))).pow(2).mean()
    loss.backward()
    pending = []
    if mode == "pending":
        pending = [dist.isend(torch.ones(4096), 1 - rank), dist.irecv(torch.ones(4096), 1 - rank)]
    if mode == "patches":
        dist.all_reduce(torch.ones(1))
    if mode == "raise" and number == 2:
        try:
            optimizer.step(lambda: 1 / 0)
        except ZeroDivisionError:
            say("caught")
    optimizer.step()
    optimizer.zero_grad()
    for work in pending:
        work.wait()
    if mode == "retain":
        work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
        work.wait()
    say(f"step {number} loss {loss.item():.6f}")


if mode == "region":
    with record_function("epoch"):
        for number in range(STEPS):
            step(number)
elif mode == "profiler":
    with profile(activities=[ProfilerActivity.CPU]) as mine:
        for number in range(STEPS):
            step(number)
    say("events", len(mine.events()) > 0)
elif mode == "fork":
    step(0)
    child = os.fork()
    if child == 0:
        sys.exit(3)
    say("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    step(1)
else:
    for number in range(STEPS):
        step(number)
say(calls)
dist.destroy_process_group()
