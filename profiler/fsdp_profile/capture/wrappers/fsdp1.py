"""Hooks on FSDP1 (FullyShardedDataParallel): gather, forward, backward, reshard, reduce of every flat parameter.

Private names of `_flat_param` and `_runtime_utils`, identical in torch 2.4 .. 2.15.
"""

from typing import Any

from fsdp_profile.capture.recorder import nbytes, now
from fsdp_profile.capture.units import clean_name, dtype_text
from fsdp_profile.capture.wrappers.base import FlatParameter, Original, Wrapper
from fsdp_profile.core.capture_log import GATHER_REGION
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT, Phase, Prefetch, SpanKind, UnitKind
from fsdp_profile.core.units import UnitDescription

FLAT_PARAM = ("torch.distributed.fsdp._flat_param",)
RUNTIME = ("torch.distributed.fsdp._runtime_utils",)


class Fsdp1(Wrapper):
    """FullyShardedDataParallel; a unit is a FlatParamHandle."""

    modules = (*FLAT_PARAM, *RUNTIME)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._replicas: dict[int, int] = {}
        """Unit -> copies of each shard (HYBRID_SHARD)."""
        self._roots: set[int] = set()
        """Units of root modules."""

    def install(self, module: str) -> None:
        """Wrap FlatParamHandle, or the functions around it."""
        if module in FLAT_PARAM:
            self._install_flat_param()
        else:
            self._install_runtime()

    def owns(self, unit: Any) -> bool:
        """Whether a unit's object is a FlatParamHandle."""
        return hasattr(unit, "flat_param")

    def describe_unit(self, number: int, unit: Any) -> UnitDescription:
        """A handle as it is now."""
        name, replicas = self._units.names.get(number), self._replicas.get(number, 1)
        return describe(unit, name, replicas=replicas, is_root=number in self._roots)

    def flat_parameters(self, root: Any) -> list[FlatParameter]:
        """The flat parameters of a root module, by the shapes of what they were made of."""
        handles = (_flat_param_handle(module) for module in root.modules())
        return [_flat_parameter(handle.flat_param) for handle in handles if handle is not None]

    def _install_flat_param(self) -> None:
        """Wrap FlatParamHandle."""
        wraps = {
            "__init__": (self._init, "FSDP1 units"),
            "shard": (self._shard, "FSDP1 shards"),
            "pre_unshard": (self._pre_unshard, "FSDP1 mixed-precision shards"),
            "unshard": (self._unshard, "FSDP1 gathered parameters"),
            "_all_gather_flat_param": (self._all_gather, "FSDP1 all-gathers"),
            "_free_unsharded_flat_param": (self._free, "FSDP1 reshards"),
        }
        for name, (make, feature) in wraps.items():
            self._patcher.wrap(FLAT_PARAM, f"FlatParamHandle.{name}", make, feature=feature)

    def _install_runtime(self) -> None:
        """Wrap the functions of _runtime_utils, before fully_sharded_data_parallel imports them."""
        wraps = {
            "_lazy_init": (self._lazy_init, "FSDP1 root module"),
            "_root_pre_forward": (self._root_pre_forward, "FSDP1 forward phase"),
            "_pre_forward": (self._pre_forward, "FSDP1 forward spans"),
            "_post_forward": (self._post_forward, "FSDP1 forward spans"),
            "_pre_backward_hook": (self._pre_backward, "FSDP1 backward spans"),
            "_post_backward_hook": (self._post_backward, "FSDP1 gradient reductions"),
            "_prefetch_handle": (self._prefetch, "FSDP1 prefetch marks"),
        }
        for name, (make, feature) in wraps.items():
            self._patcher.wrap(RUNTIME, name, make, feature=feature)

    def _init(self, original: Original) -> Original:
        def init(handle: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            params = list(params)
            with self._patcher.guarded("FSDP1 units"):
                for param in params:
                    self._recorder.tag(param, Category.UNSHARDED_PARAM, weak=True)
            original(handle, params, *args, **kwargs)
            with self._patcher.guarded("FSDP1 units"):
                unit = self._units.number(handle)
                self._recorder.tag(handle.flat_param, Category.UNSHARDED_PARAM, unit=unit, name="flat_param")

        return init

    def _shard(self, original: Original) -> Original:
        def shard(handle: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(handle, *args, **kwargs)
            with self._patcher.guarded("FSDP1 shards"):
                self._recorder.tag(
                    handle.flat_param,
                    Category.PARAM,
                    unit=self._units.number(handle),
                    name="flat_param",
                )
            return out

        return shard

    def _pre_unshard(self, original: Original) -> Original:
        def pre_unshard(handle: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = now()
            out = original(handle, *args, **kwargs)
            shard = getattr(handle.flat_param, "_mp_shard", None)
            if self._recorder.enabled and shard is not None:
                with self._patcher.guarded("FSDP1 mixed-precision shards"):
                    unit = self._units.number(handle)
                    # What is gathered from; where nothing is gathered (NO_SHARD), what is computed with.
                    what = Category.ALL_GATHER if handle.uses_sharded_strategy else Category.UNSHARDED_PARAM
                    self._recorder.tag(shard, what, unit=unit, name="mp_shard")
                    self._recorder.span(unit, GATHER_REGION, start_ns)
            return out

        return pre_unshard

    def _unshard(self, original: Original) -> Original:
        def unshard(handle: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = now()
            out = original(handle, *args, **kwargs)
            if self._recorder.enabled and handle.uses_sharded_strategy:
                with self._patcher.guarded("FSDP1 gathered parameters"):
                    unit = self._units.number(handle)
                    self._recorder.span(unit, GATHER_REGION, start_ns)
                    for name in ("_full_param_padded", "_full_prec_full_param_padded"):
                        tensor = getattr(handle.flat_param, name, None)
                        if tensor is not None:
                            self._recorder.tag(tensor, Category.UNSHARDED_PARAM, unit=unit, name="flat_param")
            return out

        return unshard

    def _all_gather(self, original: Original) -> Original:
        def all_gather(handle: Any, padded: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(handle, padded, *args, **kwargs)
            start_ns = now()
            unit = self._units.number(handle)
            previous, recorder.local.unit = recorder.unit, unit
            try:
                return original(handle, padded, *args, **kwargs)
            finally:
                recorder.local.unit = previous
                with self._patcher.guarded("FSDP1 all-gathers"):
                    recorder.span(
                        unit,
                        SpanKind.ALL_GATHER.value,
                        start_ns,
                        size=nbytes(padded),
                        prefetch=recorder.prefetch,
                    )

        return all_gather

    def _prefetch(self, original: Original) -> Original:
        """`_prefetch_handle(state, current_handle, prefetch_mode)`: forward only where the script asked for it."""

        def prefetch(state: Any, handle: Any, prefetch_mode: Any, *args: Any, **kwargs: Any) -> Any:
            is_forward = getattr(prefetch_mode, "name", "") == "FORWARD"
            with self._prefetching(Prefetch.EXPLICIT if is_forward else Prefetch.IMPLICIT):
                return original(state, handle, prefetch_mode, *args, **kwargs)

        return prefetch

    def _free(self, original: Original) -> Original:
        def free(handle: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns, size = now(), 0
            if self._recorder.enabled:
                with self._patcher.guarded("FSDP1 reshards"):
                    size = handle._get_padded_unsharded_flat_param().untyped_storage().nbytes()
            out = original(handle, *args, **kwargs)
            if size:
                self._recorder.span(self._units.number(handle), SpanKind.RESHARD.value, start_ns, size=size)
            return out

        return free

    def _lazy_init(self, original: Original) -> Original:
        def lazy_init(state: Any, root_module: Any, *args: Any, **kwargs: Any) -> Any:
            is_first = state._is_root is None
            out = original(state, root_module, *args, **kwargs)
            if is_first and state._is_root:
                with self._patcher.guarded("FSDP1 root module"):
                    for name, module in root_module.named_modules():
                        handle = _flat_param_handle(module)
                        if handle is not None:
                            unit = self._units.number(handle)
                            self._units.names[unit] = clean_name(name)
                            if module is root_module:
                                self._roots.add(unit)
                            across = getattr(module, "_inter_node_pg", None)
                            self._replicas[unit] = across.size() if across is not None else 1
                            shard = getattr(handle.flat_param, "_local_shard", handle.flat_param)
                            self._recorder.tag(shard, Category.PARAM, unit=unit, name="flat_param")
                    self._on_root(root_module)
            return out

        return lazy_init

    def _root_pre_forward(self, original: Original) -> Original:
        def root_pre_forward(state: Any, module: Any, args: Any, kwargs: Any) -> Any:
            recorder = self._recorder
            is_inner = state._is_root is False or recorder.open_spans or recorder.phase is Phase.BACKWARD
            if recorder.enabled and not is_inner:
                with self._patcher.guarded("FSDP1 forward phase"):
                    recorder.in_root = True
                    self._on_forward(module, args, kwargs)
            return original(state, module, args, kwargs)

        return root_pre_forward

    def _pre_forward(self, original: Original) -> Original:
        def pre_forward(state: Any, handle: Any, *args: Any, **kwargs: Any) -> Any:
            if self._recorder.enabled and handle is not None:
                with self._patcher.guarded("FSDP1 forward spans"):
                    self._recorder.open_span(self._units.number(handle), SpanKind.FORWARD.value)
            return original(state, handle, *args, **kwargs)

        return pre_forward

    def _post_forward(self, original: Original) -> Original:
        def post_forward(state: Any, handle: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(state, handle, *args, **kwargs)
            if self._recorder.enabled:
                with self._patcher.guarded("FSDP1 forward spans"):
                    self._recorder.in_root = self._recorder.in_root and not state._is_root
                    if handle is not None:
                        self._recorder.close_span(self._units.number(handle), SpanKind.FORWARD.value)
                    self._recorder.forward_ends()
            return out

        return post_forward

    def _pre_backward(self, original: Original) -> Original:
        def pre_backward(state: Any, module: Any, handle: Any, *args: Any, **kwargs: Any) -> Any:
            if self._recorder.enabled and handle is not None:
                with self._patcher.guarded("FSDP1 backward spans"):
                    self._backward_since.setdefault(self._units.number(handle), now())
            return original(state, module, handle, *args, **kwargs)

        return pre_backward

    def _post_backward(self, original: Original) -> Original:
        def post_backward(state: Any, handle: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(state, handle, *args, **kwargs)
            unit = NO_UNIT
            with self._patcher.guarded("FSDP1 gradient reductions"):
                unit = self._units.number(handle)
                if handle.flat_param.grad is not None and handle.uses_sharded_strategy:
                    recorder.tag(handle.flat_param.grad, Category.UNSHARDED_GRAD, unit=unit, name="flat_param")
            start_ns = now()
            previous, recorder.local.unit = recorder.unit, unit
            try:
                return original(state, handle, *args, **kwargs)
            finally:
                recorder.local.unit = previous
                with self._patcher.guarded("FSDP1 gradient reductions"):
                    since = self._backward_since.pop(unit, None)
                    if since is not None:
                        recorder.spans.append((unit, SpanKind.BACKWARD.value, since, start_ns, 0, ""))
                    recorder.span(unit, SpanKind.REDUCE.value, start_ns)
                    self._tag_after_reduce(handle, unit)

        return post_backward

    def _tag_after_reduce(self, handle: Any, unit: int) -> None:
        flat_param = handle.flat_param
        kept = getattr(flat_param, "_saved_grad_shard", None)
        if kept is not None:
            self._recorder.tag(kept, Category.GRAD, unit=unit, name="flat_param")
        if flat_param.grad is not None:
            # NO_SHARD under mixed precision reduces into a copy in the parameters' own dtype.
            is_low = flat_param.grad.dtype != handle._orig_param_dtype and not handle._keep_low_precision_grads
            is_unsharded = handle.uses_sharded_strategy or is_low
            category = Category.UNSHARDED_GRAD if is_unsharded else Category.GRAD
            self._recorder.tag(flat_param.grad, category, unit=unit, name="flat_param")


def _flat_param_handle(module: Any) -> Any:
    """The handle of a module's own flat parameter; None without one."""
    handle = getattr(module, "_handle", None)
    return handle if hasattr(handle, "flat_param") else None


def _flat_parameter(flat_param: Any) -> FlatParameter:
    numel = sum(shape.numel() for shape in flat_param._shapes)
    kept = getattr(flat_param, "_local_shard", flat_param)
    return FlatParameter(
        numel=numel,
        num_params=len(flat_param._shapes),
        trainable_numel=numel if flat_param.requires_grad else 0,
        itemsize=kept.element_size(),
        dtype=dtype_text(kept.dtype),
        ids=frozenset(id(param) for param in (flat_param, *(flat_param._params or ()))),
    )


def describe(handle: Any, name: str | None, *, replicas: int = 1, is_root: bool = False) -> UnitDescription:
    """A handle's unit as it is now."""
    flat_param = handle.flat_param
    kept = getattr(flat_param, "_local_shard", flat_param)
    strategy = handle._sharding_strategy.name
    gathered = handle._fwd_bwd_param_dtype or kept.dtype
    padded = getattr(flat_param, "_padded_unsharded_size", None)
    padded_numel = padded.numel() if padded is not None else kept.numel()
    # The root's post-forward leaves its parameters gathered: backward wants them first.
    keeps_until_backward = strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2") or is_root
    return UnitDescription(
        name=clean_name(name or ""),
        kind=UnitKind.FSDP1,
        numel=sum(shape.numel() for shape in flat_param._shapes),
        num_params=len(flat_param._shapes),
        trainable_numel=_trainable_numel(flat_param),
        sharded_bytes=nbytes(kept),
        unsharded_bytes=padded_numel * gathered.itemsize,
        dtype=dtype_text(kept.dtype),
        compute_dtype=dtype_text(gathered),
        shard_size=handle.world_size if handle.uses_sharded_strategy else 1,
        replicate_size=replicas if handle.uses_sharded_strategy else handle.world_size,
        reshard_after_forward="no" if keeps_until_backward or not handle.uses_sharded_strategy else "yes",
        sharding=strategy,
    )


def _trainable_numel(flat_param: Any) -> int:
    """Elements of the parameters that require gradients; without use_orig_params all do, or none."""
    params = getattr(flat_param, "_params", None)
    if params is None:
        return sum(shape.numel() for shape in flat_param._shapes) if flat_param.requires_grad else 0
    pairs = zip(params, flat_param._shapes, strict=True)
    return sum(shape.numel() for param, shape in pairs if param.requires_grad)
