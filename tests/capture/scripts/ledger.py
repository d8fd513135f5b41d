"""One small model, trained in the ways that once gave the ledger a wrong category; the mode says which."""

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("mode")
mode = parser.parse_args().mode

WIDTH, STEPS = 64, 3


class Int8(torch.Tensor):
    """A quantised weight: int8 data and a scale a row, dequantised where it is used."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> "Int8":
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data: torch.Tensor, scale: torch.Tensor) -> None:
        self.data_int8, self.row_scale = data, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data_int8", "row_scale"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].data_int8, args[0].row_scale)

        def plain(value: Any) -> Any:
            return value.data_int8.float() * value.row_scale if isinstance(value, cls) else value

        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


class Block(nn.Module):
    """Two Linear layers; 'recompute-inside' checkpoints what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if mode == "recompute-inside":
            return checkpoint(self.body, x, use_reentrant=False)
        return self.body(x)


class Net(nn.Module):
    """A scale that no unit has, two blocks, a head; 'recompute-outside' checkpoints whole units."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        for block in self.blocks:
            if mode in ("recompute-outside", "recompute-reentrant"):
                x = checkpoint(block, x, use_reentrant=mode == "recompute-reentrant")
            else:
                x = block(x)
        return self.head(x)


def wrapped(model: Net) -> Any:
    """The model as the mode wants it."""
    if mode == "ddp-hook":
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, fp16_compress_hook)
        return ddp
    if mode == "ddp-scaler":
        return DistributedDataParallel(model)
    if mode == "fsdp1-scaler":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if mode == "ddp-no-sync":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    if mode == "no-shard":
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        strategy = ShardingStrategy.NO_SHARD
        cpu = torch.device("cpu")
        return FullyShardedDataParallel(model, sharding_strategy=strategy, mixed_precision=mixed, device_id=cpu)
    if mode == "quantised":
        weight = Int8(torch.ones(WIDTH, WIDTH, dtype=torch.int8), torch.full((WIDTH, 1), 1 / WIDTH))
        model.head.weight = nn.Parameter(weight, requires_grad=False)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model, ignored_params={model.scale, *([model.head.weight] if mode == "quantised" else [])})


dist.init_process_group("gloo")
torch.manual_seed(0)
net = wrapped(Net())
average = [torch.clone(getattr(p, "_local_tensor", p).detach()) for p in net.parameters() if p.requires_grad]
if mode == "fsdp1-scaler":
    scaler = ShardedGradScaler("cpu", init_scale=1024.0)
else:
    scaler = torch.amp.GradScaler("cpu", enabled=mode == "ddp-scaler")
frozen = nn.Linear(WIDTH, WIDTH, bias=False)
frozen.weight = nn.Parameter(frozen.weight.detach().clone(), requires_grad=False)
optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
for step in range(STEPS):
    x = torch.full((8, WIDTH), float(step + 1))
    if mode in ("no-shard", "ddp-no-sync"):
        with net.no_sync():
            net(x).pow(2).mean().backward()
    overflows = mode == "fsdp1-scaler" and step == 1
    scaler.scale(net(x).pow(2).mean() * (float("inf") if overflows else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
dist.destroy_process_group()
