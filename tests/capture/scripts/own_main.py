"""Trains a little, and tells as JSON what it is to itself: `__main__`, paths, arguments, pickles, workers, neighbours.

Started plainly, or with --spawn by its own mp.spawn. Whoever starts it, rank 0 must print the same.
"""

import functools
import io
import json
import logging
import multiprocessing as mp
import os
import pickle
import socket
import sys
import warnings
from pathlib import Path

import capture
import dashboard
import profiler
import schema
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, Dataset

GLOBALS_AT_START = {key: type(value).__name__ for key, value in globals().items()}
RELATIVE = Path("numbers.txt")


class Net(nn.Module):
    """A class of the script, as pickles name it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Numbers(Dataset):
    """Reads a relative path; every item tells what its worker's process is."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"value": int(RELATIVE.read_text().split()[index]), "process": process()}


def process() -> dict[str, object]:
    """What must be of the script alone in any process of it."""
    return {
        "argv": sys.argv,
        "main": sorted({name for name in ("__main__", "__mp_main__") if name in sys.modules}),
        "environment": sorted(os.environ),
        "python_path": os.environ.get("PYTHONPATH"),
        "path": sys.path,
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


def in_child(queue: mp.Queue, net: Net) -> None:
    """Sent to a child by name, with an object of a class of the script."""
    queue.put((type(net).__module__, type(net).__qualname__, process(), "fsdp_profile.capture" in sys.modules))


def through(method: str, net: Net) -> tuple[object, ...]:
    """What a child of this start method says."""
    context = mp.get_context(method)
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue, net))
    child.start()
    said = queue.get(timeout=60)
    child.join()
    return (*said[: 3 if method == "fork" else 4], child.exitcode)


def loaded(method: str) -> list[dict[str, object]]:
    """What a worker loads."""
    loader = DataLoader(Numbers(), batch_size=None, num_workers=1, multiprocessing_context=method)
    return list(loader)


def saved(thing: object) -> str:
    """Where a pickle of torch.save says that a class is."""
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    return f"{type(again).__module__}.{type(again).__qualname__} {isinstance(again, type(thing))}"


def facts(net: Net) -> dict[str, object]:
    """All of it."""
    main = sys.modules["__main__"]
    with open(sys.argv[0]) as file:  # noqa: PTH123 as scripts do
        own_source = file.readline()
    return {
        "name": __name__,
        "file": __file__,
        "package": __package__,
        "spec": getattr(__spec__, "name", None),
        "loader": type(__loader__).__name__,
        "builtins": type(__builtins__).__name__,
        "globals": GLOBALS_AT_START,
        "is_main": main.__dict__ is globals() if __name__ == "__main__" else main.__name__,
        "own_source": own_source,
        "neighbours": {m.__name__: [m.__file__, m.WHO] for m in (profiler, dashboard, schema, capture)},
        "folder": os.getcwd(),  # noqa: PTH109 as scripts do
        "options": [repr(sys.flags), sys._xoptions, sys.warnoptions, len(warnings.filters)],
        "logging": [logging.root.level, len(logging.root.handlers)],
        "unbuffered": sys.stdout.write_through,
        "pickles": [saved(net), pickle.loads(pickle.dumps(Numbers)).__module__, pickle.dumps(process).hex()],
        "process": process(),
        "children": {method: through(method, net) for method in ("fork", "spawn")},
        "workers": {method: loaded(method) for method in ("fork", "spawn")},
    }


def train(rank: int, world_size: int, port: int) -> None:
    """Three steps, then what the script is to itself."""
    if port:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        loss = net(torch.randn(4, 16) + step).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if dist.get_rank() == 0:
        print(json.dumps({"losses": losses, **facts(net.module)}, indent=1, default=str), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--spawn" in sys.argv:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free_port = probe.getsockname()[1]
        torch.multiprocessing.spawn(functools.partial(train), args=(2, free_port), nprocs=2)
    else:
        train(-1, -1, 0)
