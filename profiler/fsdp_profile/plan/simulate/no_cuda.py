"""Scripts written for CUDA, simulated where there is none: what asks for a CUDA device gets the CPU.

Only in a simulated rank, and only where this torch has no CUDA: the tensors hold no data, so it does not matter where
they do not hold it. Counted as CPU memory: no rounding to 512 bytes. What torch chooses by device stays the CPU's
choice (an optimizer's `foreach` among it). Checked with torch 2.13.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")
_NOTHING = (
    "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "manual_seed", "manual_seed_all", "init",
    "reset_max_memory_allocated", "set_per_process_memory_fraction",
)  # fmt: skip
_ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


asked: list[str] = []
"""What was asked of a CUDA device, once something was."""


class CudaAsCpu(TorchFunctionMode):
    """Every operator that is given a CUDA device is given the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator on the CPU."""
        if func is torch.device:
            return _moved(func(*args, **kwargs or {}))
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        named = {name: _moved(value) for name, value in (kwargs or {}).items()}
        return func(*(_moved(value) for value in args), **named)


def install() -> None:
    """Answer torch.cuda's own functions, and wrappers that are given a CUDA device, with the CPU."""
    from torch.distributed import device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    cuda: Any = torch.cuda
    for name in _NOTHING:
        setattr(cuda, name, lambda *_args, **_kwargs: None)
    for name in _ZERO:
        setattr(cuda, name, lambda *_args, **_kwargs: 0)
    cuda.current_device = lambda: _CPU
    cuda.get_device_name = lambda *_args: "simulated on the CPU"
    for owner, name in (
        (torch.autocast, "__init__"), (torch.amp.GradScaler, "__init__"), (device_mesh, "init_device_mesh"),
    ):  # fmt: skip
        setattr(owner, name, _with_cpu(getattr(owner, name)))
    module: Any = torch.nn.Module
    module.cuda = lambda self, *_args: self
    for wrapper, options in ((FullyShardedDataParallel, ("device_id",)),
                             (DistributedDataParallel, ("device_ids", "output_device"))):  # fmt: skip
        wrapper.__init__ = _without(wrapper.__init__, options)  # type: ignore[method-assign]


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        asked[:] = [str(value)]
        return _CPU
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        asked[:] = [value]
        return "cpu"
    return value


def _with_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*map(_moved, args), **{name: _moved(value) for name, value in kwargs.items()})

    return call


def _without(original: Callable[..., Any], options: tuple[str, ...]) -> Callable[..., Any]:
    """Give FSDP1 the CPU and DDP no device, which it does not accept on a CPU."""

    @functools.wraps(original)
    def init(module: Any, *args: Any, **kwargs: Any) -> None:
        for name in options:
            if name in kwargs:
                kwargs.pop(name)
                if name == "device_id":
                    kwargs[name] = _CPU
        original(module, *args, **kwargs)

    return init
