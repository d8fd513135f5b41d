"""Shard a DDP script: its DistributedDataParallel object stays, and its module is sharded by `fully_shard`.

FSDP2, because it keeps the script's module, its parameter names and its mixed `requires_grad` as they are; FSDP1 would
put flat parameters in their place. A unit is each of the model's repeated blocks, and the root holds what is left:
the usual way of wrapping by hand. The script goes on calling the DDP object, whose methods are answered here.
"""

import contextlib
import functools
import gc
import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fsdp_profile.capture.rewrap.context import Context, device_type_of
from fsdp_profile.capture.rewrap.target import Recipe

MODULE = "torch.nn.parallel.distributed"
CLIP = "torch.nn.utils.clip_grad"
_REFUSED = {
    "register_comm_hook": "it is written for DDP's buckets",
    "_register_comm_hook": "it is written for DDP's buckets",
    "_register_builtin_comm_hook": "it is written for DDP's buckets",
    "_register_fused_optim": "it steps inside DDP's reducer",
    "join": "ranks with uneven inputs cannot gather from each other",
    "load_state_dict": "whole tensors cannot be loaded into shards here; load before wrapping",
}


def install(module: Any, context: Context) -> None:
    """Exchange what DistributedDataParallel does; the class stays the same object."""
    kind = module.DistributedDataParallel
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(self, *args, **kwargs)
        given.apply_defaults()
        _init(self, given.arguments, context)

    kind.__init__ = init
    kind.forward, kind.no_sync = _forward, _no_sync
    for name, why in _REFUSED.items():
        setattr(kind, name, _refused(f"DistributedDataParallel.{name}", why, context))
    kind._set_static_graph = lambda _self: None
    kind._get_ddp_logging_data = lambda _self: {}


def whole_norm(module: Any, context: Context) -> None:
    """Return a plain tensor from `clip_grad_norm_`, as a DDP script expects to format and log."""
    original = module.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        is_sharded = context.has_sharded_ddp and hasattr(norm, "full_tensor")
        return norm.full_tensor() if is_sharded else norm

    module.clip_grad_norm_ = clip_grad_norm_


def _refused(call: str, why: str, context: Context) -> Any:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        context.refuse(call, why)

    return refused


def _init(ddp: Any, given: dict[str, Any], context: Context) -> None:
    import torch
    import torch.distributed as dist

    module = given["module"]
    torch.nn.Module.__init__(ddp)
    ddp.module, ddp.require_backward_grad_sync = module, True
    ddp.device_ids, ddp.process_group = given["device_ids"], given["process_group"] or dist.group.WORLD
    ddp.broadcast_buffers = given["broadcast_buffers"] is not False
    ddp.device = next(iter(module.parameters())).device
    if ddp.process_group.size() != dist.get_world_size():
        context.refuse("DistributedDataParallel(process_group=...)", "it spans only some of the ranks")
    with torch.no_grad():  # as DDP does: the first rank's weights are everybody's
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), 0)
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    before = dict(module.named_parameters(remove_duplicate=False))
    _shard(module, given, {before[name] for name in ignored if name in before}, context)
    _mend_optimizers(before, dict(module.named_parameters(remove_duplicate=False)), context)


def _shard(module: Any, given: dict[str, Any], ignored: set[Any], context: Context) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    context.has_sharded_ddp = True
    arguments: dict[str, Any] = {"mesh": context.mesh(device_type_of(module))}
    precision = given.get("mixed_precision")
    if precision is not None:
        arguments["mp_policy"] = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype)
    if context.target.recipe is Recipe.ZERO2:
        arguments["reshard_after_forward"] = False
    if ignored:
        arguments["ignored_params"] = ignored
    blocks = repeated_blocks(module)
    for block in blocks:
        fully_shard(block, **arguments)
    fully_shard(module, **arguments)
    kinds = ", ".join(sorted({type(block).__name__.removeprefix("FSDP") for block in blocks}))
    units = f"{len(blocks)} blocks ({kinds}) and the root" if blocks else "the root alone: no repeated blocks"
    context.note(f"DistributedDataParallel became FSDP2's fully_shard; units: {units}")


def repeated_blocks(module: Any) -> list[Any]:
    """The outermost repeated parts of a model: elements of a container that holds two or more of their class.

    A part without parameters, one that shares a parameter with another part, and a container that has no forward
    of its own are no units.
    """
    from torch import nn

    owners = Counter(id(p) for one in module.modules() for p in set(one.parameters(recurse=False)))
    containers = (nn.ModuleList, nn.ModuleDict)

    def within(one: Any) -> list[Any]:
        found = []
        children = list(one.children())
        is_container = isinstance(one, (*containers, nn.Sequential))
        kinds = Counter(type(child) for child in children)
        for child in children:
            is_repeated = is_container and kinds[type(child)] > 1 and not isinstance(child, containers)
            params = list(child.parameters())
            if is_repeated and params and all(owners[id(p)] == 1 for p in params):
                found.append(child)
            else:
                found += within(child)
        return found

    return within(module)


def _mend_optimizers(before: dict[str, Any], after: dict[str, Any], context: Context) -> None:
    """DDP leaves parameters as they are, fully_shard makes new ones: optimizers built earlier are given those."""
    from torch.optim import Optimizer

    new = {id(old): after[name] for name, old in before.items() if after[name] is not old}
    for one in gc.get_objects():
        if not issubclass(type(one), Optimizer):
            continue
        stale = [p for group in one.param_groups for p in group["params"] if id(p) in new]
        if any(p in one.state for p in stale):
            context.refuse("DistributedDataParallel(...)", "the optimizer has states of the unsharded parameters")
        for group in one.param_groups if stale else ():
            group["params"] = [new.get(id(p), p) for p in group["params"]]
        if stale:
            context.note(f"{type(one).__name__} was built before wrapping: it was given the sharded parameters")


def _forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
    import torch
    import torch.distributed as dist

    if ddp.broadcast_buffers and ddp.require_backward_grad_sync and ddp.module.training:
        with torch.no_grad():
            for buffer in ddp.module.buffers():
                dist.broadcast(buffer, 0)
    ddp.module.set_requires_gradient_sync(ddp.require_backward_grad_sync)
    return ddp.module(*inputs, **kwargs)


@contextlib.contextmanager
def _no_sync(ddp: Any) -> Iterator[None]:
    before, ddp.require_backward_grad_sync = ddp.require_backward_grad_sync, False
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = before
