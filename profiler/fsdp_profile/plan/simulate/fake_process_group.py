"""A process group that moves no data, for a process that runs as rank 0 of N.

Checked with torch 2.13. Names that a torch version lacks are skipped.
"""

import contextlib
import functools
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed as ddp
from torch.utils._python_dispatch import _disable_current_modes

from fsdp_profile.core.categories import Category


def install_process_group(world_size: int, *, recorder: Any) -> None:
    """Make every process group of this process a fake one of the size it asks for.

    `recorder` is the one of a simulation with fake tensors, None where tensors are real.
    """
    from torch.distributed import device_mesh, distributed_c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from fsdp_profile.plan.simulate import no_cuda

    def init_process_group(*_args: Any, **_kwargs: Any) -> None:
        before = list(no_cuda.asked)
        with _disable_current_modes():
            original("fake", store=FakeStore(), rank=0, world_size=world_size)
        no_cuda.asked[:] = before  # torch itself names a CUDA device here; the script did not

    original = distributed_c10d.init_process_group
    _replace(distributed_c10d, "init_process_group", functools.wraps(original)(init_process_group))
    _replace(distributed_c10d, "new_group", _without_backend(distributed_c10d.new_group))
    _replace_object_collectives(distributed_c10d, world_size)
    # A mesh is made of real tensors with ranks in them.
    _replace(device_mesh.DeviceMesh, "__init__", _outside_modes(device_mesh.DeviceMesh.__init__))
    _replace(device_mesh, "init_device_mesh", _outside_modes(device_mesh.init_device_mesh))
    _replace(device_mesh.DeviceMesh, "_flatten", _outside_modes(device_mesh.DeviceMesh._flatten))
    _replace(device_mesh.DeviceMesh, "__getitem__", _outside_modes(device_mesh.DeviceMesh.__getitem__))
    _replace_everywhere("_get_post_forward_mesh_info")  # reshard_after_forward=int
    _replace(ddp.DistributedDataParallel, "__init__", _ddp_init(ddp.DistributedDataParallel.__init__, recorder))
    _replace(ddp.DistributedDataParallel, "_pre_forward", _ddp_forward(ddp.DistributedDataParallel._pre_forward))


def _replace(owner: Any, name: str, function: Any) -> None:
    """In its own module and wherever torch has imported the name from it."""
    before = getattr(owner, name)
    setattr(owner, name, function)
    for module in (dist,):
        if getattr(module, name, None) is before:
            setattr(module, name, function)


def _replace_everywhere(name: str) -> None:
    """A private function of FSDP2 that makes a mesh, in every module that imported it; absent before torch 2.4."""
    import torch.distributed.fsdp  # noqa: F401

    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed") and callable(found := getattr(module, name, None)):
            setattr(module, name, _outside_modes(found))


def _outside_modes(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return original(*args, **kwargs)

    return call


def _without_backend(original: Any) -> Any:
    @functools.wraps(original)
    def new_group(ranks: Any = None, *_args: Any, **kwargs: Any) -> Any:
        named = {name: kwargs[name] for name in ("use_local_synchronization", "group_desc") if name in kwargs}
        with _disable_current_modes():
            return original(ranks, **named)

    return new_group


def _replace_object_collectives(c10d: Any, world_size: int) -> None:
    """Objects go as tensors of bytes, which hold nothing here: everybody has what rank 0 has."""

    def size_of(group: Any) -> int:
        return world_size if group is None else int(group.size())

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * size_of(group)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *_args: Any, **kwargs: Any) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * size_of(kwargs.get("group"))

    def broadcast_object_list(*_args: Any, **_kwargs: Any) -> None:
        return

    def scatter_object_list(outputs: list[Any], inputs: list[Any], *_args: Any, **_kwargs: Any) -> None:
        outputs[0] = inputs[0]

    def barrier(*_args: Any, **_kwargs: Any) -> None:
        return

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list, barrier):
        _replace(c10d, function.__name__, function)
    _replace(c10d, "monitored_barrier", barrier)


def _ddp_init(original: Any, recorder: Any) -> Any:
    """No check and no broadcast at the start: the one reads, the other sends what is not there."""

    @functools.wraps(original)
    def init(module: Any, *args: Any, **kwargs: Any) -> None:
        before = recorder.log.next_address if recorder is not None else 0
        original(module, *args, **{**kwargs, "init_sync": False})
        if recorder is not None and hasattr(module, "reducer"):  # a re-wrap puts something else in DDP's place
            # In Python the buckets exist as tensors here, and would be taken for the script's own.
            recorder.tag_since(before, Category.BUCKET)
            module.reducer = _Reducer(module.reducer)

    return init


def _ddp_forward(original: Any) -> Any:
    """The fake group has no all-reduce that the reducer can call: a hook hands the bucket back as it is."""

    @functools.wraps(original)
    def pre_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(module, "_fsdp_profile_hooked", False):
            module._fsdp_profile_hooked = True
            inner = getattr(module.reducer, "_reducer", module.reducer)
            with contextlib.suppress(RuntimeError):  # the script's own hook is there already
                _c10d()._register_comm_hook(inner, None, _hand_back)
        return original(module, *args, **kwargs)

    return pre_forward


def _c10d() -> Any:
    """torch.distributed, whose hook the capture may have wrapped."""
    return dist


def _hand_back(_state: Any, bucket: Any) -> Any:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class _Reducer:
    """DDP's reducer without its rebuild of buckets, which reads an order of parameters from a tensor.

    The buckets it would make hold the same bytes.
    """

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        return False
