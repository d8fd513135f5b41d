"""Exchange FullyShardedDataParallel (FSDP1): another sharding strategy, another mesh, or DDP in its place."""

import contextlib
import functools
import inspect
from collections.abc import Iterator
from typing import Any

from fsdp_profile.capture.rewrap.context import Context, accelerator
from fsdp_profile.capture.rewrap.replica import Replica, replicate, set_precision
from fsdp_profile.capture.rewrap.target import Recipe

MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"
_STRATEGIES = {Recipe.ZERO2: "SHARD_GRAD_OP", Recipe.FSDP: "FULL_SHARD", Recipe.HSDP: "HYBRID_SHARD"}
_SHARDED_STATE = ("sharded_optim_state_dict", "flatten_sharded_optim_state_dict", "shard_full_optim_state_dict",
                  "scatter_full_optim_state_dict")  # fmt: skip


def install(module: Any, context: Context) -> None:
    """Exchange the class, or what its constructor is given."""
    if context.target.is_replicated:
        module.FullyShardedDataParallel = _stand_in(module.FullyShardedDataParallel, context)
        return
    kind = module.FullyShardedDataParallel
    original, strategy = kind.__init__, module.ShardingStrategy[_STRATEGIES[context.target.recipe]]

    @functools.wraps(original)
    def init(self: Any, wrapped: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(inspect.signature(original).bind(self, wrapped, *args, **kwargs).arguments)
        given = {**given, **given.pop("kwargs", {}), "sharding_strategy": strategy}
        _set_groups(given, wrapped, context)
        original(given.pop("self"), given.pop("module"), **given)

    kind.__init__ = init


def _set_groups(given: dict[str, Any], wrapped: Any, context: Context) -> None:
    """The process groups of the strategy: the script's own where it shards over them, else over all ranks."""
    mesh, group = given.get("device_mesh"), given.get("process_group")
    if context.target.recipe is Recipe.HSDP:
        given["process_group"] = None
        given["device_mesh"] = context.mesh(_device_type(given, wrapped))
        return
    if isinstance(group, tuple):  # (inside a group of shards, across them)
        given["process_group"] = None
    if mesh is not None and mesh.ndim == 2:
        given["device_mesh"] = context.mesh_like(mesh, "FullyShardedDataParallel")


def _device_type(given: dict[str, Any], wrapped: Any) -> str:
    import torch

    device = given.get("device_id")
    if isinstance(device, torch.device):
        return device.type
    where = {param.device.type for param in wrapped.parameters()} - {"cpu", "meta"}
    return accelerator() if device is not None or not where else str(where.pop())


class Replicated(Replica):
    """FSDP1's methods on a module that DDP replicates."""

    @property
    def _fsdp_wrapped_module(self) -> Any:
        return self

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Gradients are whole: the norm is the ordinary one."""
        from torch.nn.utils import clip_grad_norm_

        return clip_grad_norm_(self.parameters(), max_norm, norm_type)  # type: ignore[attr-defined]

    def check_is_root(self) -> bool:
        """Whether this module's DDP was made."""
        return self._replica_ddp is not None

    def register_comm_hook(self, *_args: Any, **_kwargs: Any) -> Any:
        """Written for FSDP's reduce-scatter."""
        self._replica_context.refuse("FullyShardedDataParallel.register_comm_hook", "DDP's hooks take other arguments")


class _ReplicatedWithModule(Replicated):
    """The same where the model has no part called `module` itself."""

    @property
    def module(self) -> Any:
        """What FSDP would have wrapped."""
        return self


def _wrap(real: Any, context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = inspect.signature(real.__init__).bind(None, *args, **kwargs).arguments
    module = given["module"]
    offload = given.get("cpu_offload")
    if offload is not None and getattr(offload, "offload_params", offload):
        context.refuse("FullyShardedDataParallel(cpu_offload=...)", "DDP does not offload parameters to the host")
    _materialize(module, given, context)
    if given.get("device_id") is not None:
        module.to(given["device_id"])
    ignored = _ignored(given)
    replicate(module, Replicated if hasattr(module, "module") else _ReplicatedWithModule, context)
    module.__dict__["_replica_ignored"] = ignored
    set_precision(module, getattr(given.get("mixed_precision"), "param_dtype", None), context)
    return module


def _ignored(given: dict[str, Any]) -> tuple[Any, ...]:
    found = []
    for one in (*(given.get("ignored_modules") or ()), *(given.get("ignored_states") or ())):
        found += list(one.parameters()) if hasattr(one, "parameters") else [one]
    return tuple(found)


def _materialize(module: Any, given: dict[str, Any], context: Context) -> None:
    """Parameters on meta, made as FSDP1 makes them: by `param_init_fn`, else by each module's reset_parameters."""
    on_meta = [m for m in module.modules() if any(p.is_meta for p in m.parameters(recurse=False))]
    if on_meta:
        context.note("the model is built on meta: its weights are initialized again and differ from a sharded run's")
    for one in on_meta:
        if given.get("param_init_fn") is not None:
            given["param_init_fn"](one)
        else:
            one.to_empty(device=given.get("device_id") or "cpu", recurse=False)
            one.reset_parameters()


def _stand_in(real: Any, context: Context) -> Any:
    """FullyShardedDataParallel as the script imports it: calling it replicates; its static methods speak of wholes."""

    class Called(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return _wrap(real, context, args, kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, Replicated | real)

        def __getattr__(cls, name: str) -> Any:
            if hasattr(real, name):
                context.refuse(f"FullyShardedDataParallel.{name}", "it has no meaning without shards")
            raise AttributeError(f"type object 'FullyShardedDataParallel' has no attribute {name!r}")

    return Called("FullyShardedDataParallel", (), {**_static_methods(context), "__doc__": real.__doc__})


def _static_methods(context: Context) -> dict[str, Any]:
    @contextlib.contextmanager
    def state_dict_type(_module: Any, kind: Any = None, *_args: Any, **_kwargs: Any) -> Iterator[None]:
        _check_whole(kind, context)
        yield

    def set_state_dict_type(_module: Any, kind: Any = None, *_args: Any, **_kwargs: Any) -> None:
        _check_whole(kind, context)

    @contextlib.contextmanager
    def summon_full_params(*_args: Any, **_kwargs: Any) -> Iterator[None]:
        yield

    def clip_grad_norm_(module: Any, *args: Any, **kwargs: Any) -> Any:
        return Replicated.clip_grad_norm_(module, *args, **kwargs)

    def fsdp_modules(_module: Any, root_only: bool = False) -> list[Any]:
        return []  # torch's own checkpointing then takes the model for the plain module it is

    methods: dict[str, Any] = {
        "state_dict_type": state_dict_type,
        "set_state_dict_type": set_state_dict_type,
        "summon_full_params": summon_full_params,
        "clip_grad_norm_": clip_grad_norm_,
        "fsdp_modules": fsdp_modules,
        "optim_state_dict": by_name,
        "full_optim_state_dict": by_name,
    }
    return {name: staticmethod(function) for name, function in methods.items()}


def _check_whole(kind: Any, context: Context) -> None:
    name = getattr(kind, "name", "")
    if name and name != "FULL_STATE_DICT":
        context.refuse(f"FullyShardedDataParallel.state_dict_type({name})", "there are no shards to save or load")


def by_name(model: Any, optim: Any, optim_state_dict: Any = None, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
    """An optimizer's state dict keyed by parameter names, as FSDP1 gives it."""
    found = optim_state_dict if isinstance(optim_state_dict, dict) else optim.state_dict()
    names = {id(param): name for name, param in model.named_parameters()}
    order = [names.get(id(p), str(i)) for i, p in enumerate(p for g in optim.param_groups for p in g["params"])]
    return {
        "state": {order[i]: state for i, state in found["state"].items()},
        "param_groups": [{**g, "params": [order[i] for i in g["params"]]} for g in found["param_groups"]],
    }
