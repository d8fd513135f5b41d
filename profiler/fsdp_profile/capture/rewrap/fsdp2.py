"""Exchange `fully_shard` (FSDP2): another resharding, another mesh, or DDP in its place.

The function's module moved in torch 2.6; it and FSDPModule are exchanged there before anybody imports them from it.
"""

import functools
import inspect
from typing import Any

from fsdp_profile.capture.rewrap.context import Context
from fsdp_profile.capture.rewrap.replica import Replica, replicate, set_precision, whole_tensors
from fsdp_profile.capture.rewrap.target import Recipe

MODULES = (
    "torch.distributed.fsdp._fully_shard._fully_shard",
    "torch.distributed._composable.fsdp.fully_shard",
)


def install(module: Any, context: Context) -> None:
    """Exchange what a module defines; the older of the two names is only a view of the newer where both are there."""
    original = getattr(module, "fully_shard", None)
    if original is None or getattr(original, "__module__", "") != module.__name__:
        return
    if context.target.is_replicated:
        _replace_by_ddp(module, original, context)
        return
    _keep_resharding(module.FSDPModule)

    @functools.wraps(original)
    def fully_shard(wrapped: Any, *args: Any, **kwargs: Any) -> Any:
        return original(wrapped, *args, **sharded(kwargs, context))

    module.fully_shard = fully_shard


def sharded(kwargs: dict[str, Any], context: Context) -> dict[str, Any]:
    """The arguments of fully_shard, for the strategy."""
    changed = dict(kwargs)
    if changed.get("dp_mesh_dims") is not None:
        context.refuse("fully_shard(dp_mesh_dims=...)", "which of its dimensions shard is not known here")
    mesh = changed.get("mesh")
    if mesh is None or mesh.ndim == 2 or context.target.recipe is Recipe.HSDP:
        changed["mesh"] = context.mesh_like(mesh, "fully_shard")
    # Left out, torch decides as it does by default: every unit reshards but the root, which backward wants first.
    changed.pop("reshard_after_forward", None)
    if context.target.recipe is Recipe.ZERO2:
        changed["reshard_after_forward"] = False
    return changed


def _keep_resharding(fsdp_module: Any) -> None:
    """Ignore the script's later calls on when to reshard: `--as` decides it."""

    def set_reshard_after_forward(_module: Any, *_args: Any, **_kwargs: Any) -> None:
        return None

    if hasattr(fsdp_module, "set_reshard_after_forward"):
        fsdp_module.set_reshard_after_forward = set_reshard_after_forward


def _replace_by_ddp(module: Any, original: Any, context: Context) -> None:
    real = module.FSDPModule
    front = _front(real, context)

    @functools.wraps(original)
    def fully_shard(wrapped: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(wrapped, *args, **kwargs).arguments
        mesh, policy = given.get("mesh"), given.get("mp_policy")
        context.check_spans(mesh, "fully_shard")
        if type(given.get("offload_policy")).__name__ == "CPUOffloadPolicy":
            context.refuse(
                "fully_shard(offload_policy=CPUOffloadPolicy())", "DDP does not offload parameters to the host"
            )
        for one in wrapped if isinstance(wrapped, list | tuple) else [wrapped]:
            if any(param.is_meta for param in one.parameters()):
                context.note(
                    "the model is built on meta: its weights are initialized again and differ from a sharded run's"
                )
            replicate(one, front, context)
            one.__dict__["_replica_ignored"] = tuple(given.get("ignored_params") or ())
            set_precision(one, getattr(policy, "param_dtype", None), context)
        return wrapped

    def register_fsdp_forward_method(wrapped: Any, method_name: str) -> None:
        if isinstance(wrapped, Replica):
            _guard_method(wrapped, method_name, context)

    whole_tensors(context)
    module.fully_shard = fully_shard
    module.FSDPModule = _stand_in(real, front)
    if hasattr(module, "register_fsdp_forward_method"):  # from torch 2.5 on
        module.register_fsdp_forward_method = register_fsdp_forward_method
    if hasattr(module, "share_comm_ctx"):
        module.share_comm_ctx = lambda _modules: None


def _guard_method(wrapped: Any, name: str, context: Context) -> None:
    """A method that FSDP runs as a forward: it needs no gathering here, but DDP reduces gradients of forward only."""
    import torch

    original = getattr(wrapped, name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and not Replica._replica_active:
            context.refuse(f"register_fsdp_forward_method({name!r})", "DDP reduces gradients of forward only")
        return original(*args, **kwargs)

    setattr(wrapped, name, method)


class _Done:
    """What `unshard(async_op=True)` gives: there is nothing to wait for."""

    def wait(self) -> None:
        """Nothing."""


def _front(real: Any, context: Context) -> type[Replica]:
    """FSDPModule's methods on a replicated module: whether gradients are synchronized; the others have no effect."""

    def set_requires_gradient_sync(module: Any, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        for one in module.modules() if recurse else (module,):
            if isinstance(one, Replica):
                one._replica_syncs = requires_gradient_sync

    def unshard(_module: Any, async_op: bool = False) -> Any:
        return _Done() if async_op else None

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    def refused(name: str) -> Any:
        def call(*_args: Any, **_kwargs: Any) -> Any:
            context.refuse(f"FSDPModule.{name}", "it changes how gradients are reduced, which is DDP's own here")

        return call

    changes_reduction = ("set_all_reduce_hook", "set_custom_reduce_scatter", "set_gradient_divide_factor",
                         "set_reduce_scatter_divide_factor", "set_requires_all_reduce")  # fmt: skip
    methods: dict[str, Any] = {}
    for name in dir(real):
        if name.startswith("set_") or name in ("reshard", "reset_iter_state"):
            methods[name] = refused(name) if name in changes_reduction else nothing
    methods |= {"set_requires_gradient_sync": set_requires_gradient_sync, "unshard": unshard}
    return type("ReplicatedModule", (Replica,), methods)


def _stand_in(real: Any, front: type[Replica]) -> Any:
    """`isinstance(module, FSDPModule)` is True of a replicated module, so that the script takes the same branches."""

    class Asked(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, front | real)

    return Asked("FSDPModule", (), {"__doc__": real.__doc__, "__module__": real.__module__})
