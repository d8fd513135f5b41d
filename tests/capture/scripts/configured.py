"""FSDP2 from a configuration: hydra's or jsonargparse's own entry, and a class named as `__main__.Net`."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    """A class that the configuration builds."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def train(net: nn.Module, width: int, steps: int) -> None:
    """Train, and print what came of the configuration."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.ones_(parameter)
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(steps):
        loss = net(torch.full((2, width), float(step + 1))).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{type(net).__mro__[2].__module__} {width} step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    tool, *sys.argv[1:] = sys.argv[1:]
    if tool == "hydra":
        import hydra

        @hydra.main(version_base=None, config_path="configured", config_name="train")
        def with_hydra(config) -> None:
            """Hydra's entry."""
            print(hydra.core.hydra_config.HydraConfig.get().job.name, flush=True)
            train(hydra.utils.instantiate(config.net), config.net.width, config.steps)

        with_hydra()
    else:
        from jsonargparse import auto_cli

        def with_jsonargparse(net: nn.Module, width: int = 8, steps: int = 1) -> None:
            """jsonargparse's entry."""
            train(net, width, steps)

        auto_cli(with_jsonargparse)
