"""Hooks on DistributedDataParallel: its replica, its forward, and the buckets of its reducer.

The reducer is C++: buckets have no Python handle. They are allocated inside `DDP.__init__` and, rebuilt in the
order gradients arrived, inside the second forward's `_pre_forward`; both are recorded as regions. Their sizes
come from `_get_ddp_logging_data` (present in torch 2.4 .. 2.15) and equal the all-reduced bytes.
"""

import functools
import weakref
from typing import Any

from fsdp_profile.capture.recorder import now
from fsdp_profile.capture.units import dtype_text
from fsdp_profile.capture.wrappers.base import Original, Wrapper
from fsdp_profile.core.capture_log import BUCKET_REGION
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT, Phase, UnitKind
from fsdp_profile.core.units import UnitDescription

MODULES = ("torch.nn.parallel.distributed",)


class Ddp(Wrapper):
    """DistributedDataParallel: a replica on every rank; its units are the buckets of its reducer."""

    modules = MODULES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._started: weakref.WeakSet[Any] = weakref.WeakSet()
        self._waiting: weakref.WeakSet[Any] = weakref.WeakSet()
        """Modules that ran a forward under no_sync since the last backward."""
        self._buckets: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()

    def install(self, module: str) -> None:
        """Wrap DistributedDataParallel."""
        name = "DistributedDataParallel"
        self._patcher.wrap(MODULES, f"{name}.__init__", self._init, feature="DDP buckets")
        self._patcher.wrap(MODULES, f"{name}._pre_forward", self._pre_forward, feature="DDP forward phase")
        self._patcher.wrap(MODULES, f"{name}._post_forward", self._post_forward, feature="DDP forward phase")
        owner = ("torch.distributed",)
        self._patcher.wrap(owner, "_register_comm_hook", self._register_comm_hook, feature="DDP communication hooks")

    def _init(self, original: Original) -> Original:
        def init(ddp: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            with self._patcher.guarded("DDP parameters"):
                self._tag_replica(module)
            start_ns = now()
            original(ddp, module, *args, **kwargs)
            with self._patcher.guarded("DDP buckets"):
                self._recorder.span(NO_UNIT, BUCKET_REGION, start_ns)
                self._wrapped.add(ddp)
                self._tag_replica(module)

        return init

    def _tag_replica(self, module: Any) -> None:
        for name, param in module.named_parameters():
            self._recorder.tag(param, Category.PARAM, name=name)

    def _register_comm_hook(self, original: Original) -> Original:
        """What the script's hook allocates (a compressed copy of the bucket) is the bucket's."""

        def register_comm_hook(reducer: Any, state: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
            @functools.wraps(hook)
            def in_region(*hook_args: Any, **hook_kwargs: Any) -> Any:
                start_ns = now()
                try:
                    return hook(*hook_args, **hook_kwargs)
                finally:
                    if self._recorder.enabled:
                        self._recorder.span(NO_UNIT, BUCKET_REGION, start_ns)

            return original(reducer, state, in_region, *args, **kwargs)

        return register_comm_hook

    def _pre_forward(self, original: Original) -> Original:
        def pre_forward(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(ddp, *args, **kwargs)
            with self._patcher.guarded("DDP forward phase"):
                if ddp not in self._started:
                    self._started.add(ddp)
                    self._tag_replica(ddp.module)
                    self._on_root(ddp.module)
                if recorder.phase is not Phase.BACKWARD:
                    self._on_forward(ddp.module, args, kwargs)
                if not ddp.require_backward_grad_sync:
                    self._waiting.add(ddp)
            start_ns = now()
            try:
                return original(ddp, *args, **kwargs)
            finally:
                with self._patcher.guarded("DDP buckets"):
                    recorder.span(NO_UNIT, BUCKET_REGION, start_ns)

        return pre_forward

    def _post_forward(self, original: Original) -> Original:
        def post_forward(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = now()
            out = original(ddp, *args, **kwargs)
            if self._recorder.enabled:
                with self._patcher.guarded("DDP buckets"):
                    self._recorder.span(NO_UNIT, BUCKET_REGION, start_ns)
                    self._recorder.forward_ends()
            return out

        return post_forward

    def tag_grads(self) -> None:
        """Tag every gradient of the wrapped modules; with bucket views that is the bucket itself."""
        for ddp in self._wrapped:
            for name, param in ddp.module.named_parameters():
                if param.grad is not None:
                    self._recorder.tag(param.grad, Category.GRAD, name=name)

    def backward_ended(self) -> None:
        """After a backward under no_sync: its gradients wait to be reduced, and with bucket views lie beside them."""
        for ddp in self._waiting:
            for name, param in ddp.module.named_parameters():
                if param.grad is not None:
                    self._recorder.tag(param.grad, Category.UNSHARDED_GRAD, name=name)
        self._waiting.clear()

    def owns(self, unit: Any) -> bool:
        """Never: a bucket of the reducer has no object in Python."""
        return False

    def describe_unit(self, number: int, unit: Any) -> UnitDescription:
        """Not called: see `owns`."""
        raise NotImplementedError

    def describe(self) -> dict[int, UnitDescription]:
        """The buckets as they are now."""
        found = {}
        for ddp in self._wrapped:
            log = ddp._get_ddp_logging_data()
            sizes = _ints(log.get("rebuilt_bucket_sizes")) or _ints(log.get("bucket_sizes"))
            params = _bucket_params(log)
            numbers = self._buckets.setdefault(ddp, [])
            while len(numbers) < len(sizes):
                numbers.append(self._units.reserve())
            group = getattr(ddp, "process_group", None)
            first = next(iter(ddp.module.parameters()), None)
            dtype = first.dtype if first is not None else None
            for index, size in enumerate(sizes):
                found[numbers[index]] = UnitDescription(
                    name=f"bucket {index}",
                    kind=UnitKind.DDP_BUCKET,
                    numel=size // dtype.itemsize if dtype is not None else 0,
                    num_params=params[index] if index < len(params) else 0,
                    sharded_bytes=size,
                    unsharded_bytes=size,
                    dtype=dtype_text(dtype),
                    compute_dtype=dtype_text(dtype),
                    shard_size=1,
                    replicate_size=int(log.get("world_size", 1)),
                    group=str(getattr(group, "group_name", "")),
                    group_description=str(getattr(group, "group_desc", "")),
                )
        return found


def _ints(text: Any) -> list[int]:
    """The numbers of '25, 4096' (how the logger prints sizes); [] of None or ''."""
    return [int(part) for part in str(text or "").split(",") if part.strip().isdecimal()]


def _bucket_params(log: dict[str, Any]) -> list[int]:
    """Parameters per bucket, of 'rebuilt_per_bucket_param_indices' such as '3 2, 1 0'."""
    text = str(log.get("rebuilt_per_bucket_param_indices") or "")
    return [len(part.split()) for part in text.split(",") if part.strip()]
