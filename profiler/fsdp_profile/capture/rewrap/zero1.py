"""ZeRO-1 over DDP: every rank steps its own part of the parameters and broadcasts it.

The rule is that of torch's ZeroRedundancyOptimizer: in each parameter group the largest parameter first, each to the
rank with the fewest elements so far; after the step one broadcast for each parameter. The script's own optimizer stays
(its class, groups, schedulers and hooks): only inside `step` do its groups hold this rank's part.
"""

import functools
import gc
import weakref
from typing import Any

from fsdp_profile.capture.rewrap.context import Context

TORCHS_OWN = "torch.distributed.optim.zero_redundancy_optimizer"
_OWN_LIST = ("LBFGS",)  # keep a list of their parameters beside the groups


def partition(groups: list[list[Any]], world_size: int) -> dict[int, int]:
    """The id of a parameter -> the rank that steps it. `groups` are the optimizer's, in order."""
    sizes, owner = [0] * world_size, {}
    for params in groups:
        for param in sorted(params, key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            owner[id(param)] = rank
            sizes[rank] += param.numel()
    return owner


class _Parts:
    """The partition of every optimizer that stepped so far."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: weakref.WeakKeyDictionary[Any, tuple[list[int], dict[int, int]]] = weakref.WeakKeyDictionary()
        self.is_stepping = False

    def of(self, optimizer: Any) -> dict[int, int]:
        """Parameter -> rank, of those that DDP replicates; made at the first step and when groups were added."""
        import torch.distributed as dist

        lengths = [len(group["params"]) for group in optimizer.param_groups]
        known = self._found.get(optimizer)
        if known is None or known[0] != lengths:
            if type(optimizer).__name__ in _OWN_LIST:
                self._context.refuse(f"{type(optimizer).__name__}.step", "it does not step by parameter groups")
            replicated = _replicated()
            groups = [[p for p in group["params"] if id(p) in replicated] for group in optimizer.param_groups]
            known = lengths, partition(groups, dist.get_world_size())
            self._found[optimizer] = known
        return known[1]


def _replicated() -> set[int]:
    """Parameters that some DDP reduces: the others differ from rank to rank, and every rank steps them itself."""
    from torch.nn.parallel import DistributedDataParallel

    found = set()
    for one in gc.get_objects():
        if issubclass(type(one), DistributedDataParallel):
            ignored = set(getattr(one, "parameters_to_ignore", ()))
            found |= {id(p) for name, p in one.module.named_parameters() if name not in ignored and p.requires_grad}
    return found


def install(module: Any, context: Context) -> None:
    """Step parts, from `torch.optim.optimizer` on: the factory of the wrapper around every optimizer's step."""
    kind, parts = module.Optimizer, _Parts(context)
    factory, load, save = kind.profile_hook_step, kind.load_state_dict, kind.state_dict

    def profile_hook_step(step: Any) -> Any:
        return factory(_in_part(step, parts))

    @functools.wraps(load)
    def load_state_dict(optimizer: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if state_dict.get("state"):
            context.refuse("Optimizer.load_state_dict", "it would load every rank's states into each")
        return load(optimizer, state_dict, *args, **kwargs)

    @functools.wraps(save)
    def state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        context.note("optimizer.state_dict() holds the states of this rank's part of the parameters")
        return save(optimizer, *args, **kwargs)

    kind.profile_hook_step = staticmethod(profile_hook_step)
    kind.load_state_dict, kind.state_dict = load_state_dict, state_dict


def _in_part(step: Any, parts: _Parts) -> Any:
    @functools.wraps(step)
    def step_own_part(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if parts.is_stepping or type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            return step(optimizer, *args, **kwargs)
        import torch.distributed as dist

        owner, rank = parts.of(optimizer), dist.get_rank()
        whole = [group["params"] for group in optimizer.param_groups]
        parts.is_stepping = True
        try:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if owner.get(id(p), rank) == rank]
            out = step(optimizer, *args, **kwargs)
        finally:
            parts.is_stepping = False
            for group, params in zip(optimizer.param_groups, whole, strict=True):
                group["params"] = params
        _broadcast([p for params in whole for p in params if id(p) in owner], owner)
        return out

    return step_own_part


def _broadcast(params: list[Any], owner: dict[int, int]) -> None:
    import torch.distributed as dist

    by_rank = sorted(params, key=lambda p: owner[id(p)])  # every rank's in one order on all ranks
    works = [dist.broadcast(p.data, owner[id(p)], async_op=True) for p in by_rank]
    for work in works:
        work.wait()


def plain_optimizers(module: Any, context: Context) -> None:
    """A script's ZeroRedundancyOptimizer becomes the optimizer it was given: how to shard is what `--as` says."""

    def new(_cls: Any, params: Any, optimizer_class: Any, *_args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("overlap_with_ddp", False):
            context.refuse("ZeroRedundancyOptimizer(overlap_with_ddp=True)", "it steps inside DDP's reducer")
        for name in ("process_group", "parameters_as_bucket_view"):
            kwargs.pop(name, None)
        context.note(f"ZeroRedundancyOptimizer became {optimizer_class.__name__}")
        optimizer = optimizer_class(params, **kwargs)
        optimizer.consolidate_state_dict = lambda *_args, **_kwargs: None
        return optimizer

    module.ZeroRedundancyOptimizer.__new__ = staticmethod(new)
