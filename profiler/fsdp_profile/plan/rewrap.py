"""Wrap the script's model in another strategy than it asks for; in a simulated rank only.

`install` replaces `DistributedDataParallel`, `FullyShardedDataParallel` and `fully_shard` before the script imports
them. A script that shards decides the units itself; of one that uses DDP every item of a ModuleList or of the longest
Sequential becomes a unit, as tutorials do it. Numbers that training would compute do not matter here: there are none.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from fsdp_profile.plan.strategies import Layout


def install(layout: str, *, replicas: int) -> None:
    """Make every wrapper of this process build `layout`, a `Layout`; before the script is imported.

    `replicas` are the groups of ranks with the same shards under HSDP.
    """
    import torch.distributed.fsdp as fsdp
    from torch.distributed.fsdp import fully_sharded_data_parallel as fsdp1
    from torch.nn import parallel
    from torch.nn.parallel import distributed as ddp

    wanted = Layout(layout)
    to_ddp = _ToDdp(ddp.DistributedDataParallel)
    if wanted is Layout.DDP:
        made: Any = _as_fsdp1(to_ddp.wrap)
        fsdp.FullyShardedDataParallel = fsdp1.FullyShardedDataParallel = made  # type: ignore[misc]
        fully_shard: Any = _as_fully_shard(to_ddp.wrap, fsdp.fully_shard)
    else:
        fully_shard = _resharding(fsdp.fully_shard, wanted, replicas)
        fsdp1.FullyShardedDataParallel.__init__ = _sharding(  # type: ignore[method-assign]
            fsdp1.FullyShardedDataParallel.__init__, wanted, replicas
        )
        replaced = _as_ddp(fully_shard)
        parallel.DistributedDataParallel = ddp.DistributedDataParallel = replaced  # type: ignore[misc]
    _replace_fully_shard(fsdp.fully_shard, fully_shard)


def _replace_fully_shard(before: Any, after: Any) -> None:
    """In every module of torch that has the name already."""
    import sys

    after.state = before.state
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and getattr(module, "fully_shard", None) is before:
            module.fully_shard = after  # type: ignore[attr-defined]


class _ToDdp:
    """DDP built around the outermost wrapped module at its first call; the module itself stays what it was."""

    def __init__(self, ddp_class: Any) -> None:
        self._class = ddp_class
        self._is_inside = False

    def wrap(self, module: Any, dtype: Any) -> Any:
        """The module, which from now on is DDP where no other wrapped module calls it."""
        cls, outer = type(module), self
        if hasattr(cls, "_fsdp_profile_as_ddp"):
            return module

        class Wrapped(cls):  # type: ignore[misc, valid-type]
            _fsdp_profile_as_ddp = True
            _sync = True

            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return outer._call(self, super().__call__, dtype, args, kwargs)

            @property
            def module(self) -> Any:
                return self

            @contextlib.contextmanager
            def no_sync(self) -> Iterator[None]:
                before, self._sync = self._sync, False
                try:
                    yield
                finally:
                    self._sync = before

            def set_requires_gradient_sync(self, requires: bool, **_kwargs: Any) -> None:
                self._sync = requires

            def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
                from torch.nn.utils import clip_grad_norm_

                return clip_grad_norm_(self.parameters(), max_norm, norm_type)

        for name in ("set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch", "reshard", "unshard",
                     "set_reshard_after_backward", "set_reshard_after_forward", "set_is_last_backward"):  # fmt: skip
            setattr(Wrapped, name, lambda *_args, **_kwargs: None)
        Wrapped.__name__, Wrapped.__module__ = cls.__name__, cls.__module__
        module.__class__ = Wrapped
        return module

    def _call(self, module: Any, forward: Callable[..., Any], dtype: Any, args: Any, kwargs: Any) -> Any:
        if self._is_inside:
            return forward(*args, **kwargs)
        ddp = module.__dict__.get("_fsdp_profile_ddp")
        if ddp is None:
            ddp = module.__dict__["_fsdp_profile_ddp"] = self._class(module)
        import torch

        device = next(module.parameters()).device.type
        is_low = dtype in (torch.bfloat16, torch.float16)
        cast = torch.autocast(device, dtype=dtype) if is_low else contextlib.nullcontext()
        self._is_inside = True
        try:
            ddp.require_backward_grad_sync = module._sync
            args, kwargs = ddp._pre_forward(*args, **kwargs)
            with cast:
                out = forward(*args, **kwargs)
            return ddp._post_forward(out)
        finally:
            self._is_inside = False


def _as_fsdp1(wrap: Callable[[Any, Any], Any]) -> Any:
    """What stands in FullyShardedDataParallel's place: called, it wraps the module as DDP."""

    class Kind(type):
        def __call__(cls, module: Any, *_args: Any, mixed_precision: Any = None, **_kwargs: Any) -> Any:
            return wrap(module, getattr(mixed_precision, "param_dtype", None))

        def __instancecheck__(cls, value: Any) -> bool:
            return hasattr(type(value), "_fsdp_profile_as_ddp")

    class FullyShardedDataParallel(metaclass=Kind):
        @staticmethod
        @contextlib.contextmanager
        def state_dict_type(*_args: Any, **_kwargs: Any) -> Iterator[None]:
            yield

        @staticmethod
        def set_state_dict_type(*_args: Any, **_kwargs: Any) -> None:
            return

    return FullyShardedDataParallel


def _as_fully_shard(wrap: Callable[[Any, Any], Any], original: Any) -> Any:
    @functools.wraps(original)
    def fully_shard(module: Any, *_args: Any, mp_policy: Any = None, **_kwargs: Any) -> Any:
        for one in module if isinstance(module, list | tuple) else [module]:
            wrap(one, getattr(mp_policy, "param_dtype", None))
        return module

    return fully_shard


def _resharding(original: Any, layout: Layout, replicas: int) -> Any:
    @functools.wraps(original)
    def fully_shard(module: Any, **kwargs: Any) -> Any:
        mesh = _mesh(kwargs.pop("mesh", None), layout, replicas, _device_of(module))
        kwargs["reshard_after_forward"] = layout is not Layout.FSDP_NO_RESHARD
        return original(module, mesh=mesh, **kwargs)

    return fully_shard


def _sharding(original: Any, layout: Layout, replicas: int) -> Any:
    """FSDP1 with the sharding strategy of the layout."""
    from torch.distributed.fsdp import ShardingStrategy

    name = {Layout.FSDP: "FULL_SHARD", Layout.FSDP_NO_RESHARD: "SHARD_GRAD_OP", Layout.HSDP: "HYBRID_SHARD"}[layout]

    @functools.wraps(original)
    def init(fsdp: Any, module: Any, _group: Any = None, _sharding: Any = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("process_group", None), kwargs.pop("sharding_strategy", None)
        mesh = _mesh(kwargs.pop("device_mesh", None), layout, replicas, _device_of(module))
        original(fsdp, module, None, ShardingStrategy[name], *args, device_mesh=mesh, **kwargs)

    return init


def _as_ddp(fully_shard: Callable[..., Any]) -> Any:
    """What stands in DistributedDataParallel's place: called, it shards the module."""

    class Kind(type):
        def __call__(cls, module: Any, *_args: Any, **_kwargs: Any) -> Any:
            for unit in units_of(module):
                fully_shard(unit)
            return _with_ddp_names(fully_shard(module))

        def __instancecheck__(cls, value: Any) -> bool:
            return hasattr(type(value), "_fsdp_profile_was_ddp")

    class DistributedDataParallel(metaclass=Kind):
        """Only its name is needed."""

    return DistributedDataParallel


def _with_ddp_names(module: Any) -> Any:
    """`.module` and `.no_sync` of DDP on a sharded module."""

    @contextlib.contextmanager
    def no_sync(self: Any) -> Iterator[None]:
        self.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.set_requires_gradient_sync(True)

    cls = type(module)
    cls._fsdp_profile_was_ddp = True
    cls.module = property(lambda self: self)
    cls.no_sync = no_sync
    return module


def units_of(module: Any) -> list[Any]:
    """Items of every outermost ModuleList; without one, those of the longest Sequential that have parameters."""
    from torch import nn

    lists = [m for m in module.modules() if isinstance(m, nn.ModuleList)]
    inner = {id(m) for found in lists for m in found.modules() if m is not found}
    items = [item for found in lists if id(found) not in inner for item in found]
    if not items:
        sequences = [m for m in module.modules() if isinstance(m, nn.Sequential)]
        items = list(max(sequences, key=len, default=()))
    return [item for item in items if next(item.parameters(), None) is not None and not isinstance(item, nn.ModuleList)]


def _mesh(given: Any, layout: Layout, replicas: int, device: str) -> Any:
    """The mesh the layout needs: two dimensions under HSDP, else one over all ranks."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    if layout is Layout.HSDP:
        return init_device_mesh(device, (replicas, size // replicas), mesh_dim_names=("replicate", "shard"))
    return given if given is not None and given.ndim == 1 else init_device_mesh(device, (size,))


def _device_of(module: Any) -> str:
    first = next((module if not isinstance(module, list | tuple) else module[0]).parameters(), None)
    return "cpu" if first is None else str(first.device.type)
