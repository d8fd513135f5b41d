"""Hooks on FSDP2 (`fully_shard`): gather, copy-out, forward, backward, reshard, reduce of every parameter group.

Private names of `_fsdp_param_group` and `_fsdp_state`, the same in torch 2.4 .. 2.15 but for their package, which
moved in 2.6. `foreach_reduce` changed its signature five times, so reductions are seen through the collectives.
"""

from typing import Any

from fsdp_profile.capture.recorder import nbytes, now
from fsdp_profile.capture.units import clean_name, dtype_text
from fsdp_profile.capture.wrappers.base import Original, Wrapper
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, Prefetch, SpanKind, UnitKind
from fsdp_profile.core.units import UnitDescription

PARAM_GROUP_MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "torch.distributed._composable.fsdp._fsdp_param_group",
)
STATE_MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_state",
    "torch.distributed._composable.fsdp._fsdp_state",
)


class Fsdp2(Wrapper):
    """`fully_shard`; a unit is an FSDPParamGroup."""

    modules = (*PARAM_GROUP_MODULES, *STATE_MODULES)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_param_group = self._has_state = False

    def install(self, module: str) -> None:
        """Wrap FSDPParamGroup or FSDPState."""
        if module in PARAM_GROUP_MODULES:
            self._install_param_group()
        else:
            self._install_state()

    def owns(self, unit: Any) -> bool:
        """Whether a unit's object is an FSDPParamGroup."""
        return hasattr(unit, "fsdp_params")

    def describe_unit(self, number: int, unit: Any) -> UnitDescription:
        """A group as it is now."""
        return describe(unit, self._units.names.get(number))

    def _install_param_group(self) -> None:
        """Wrap FSDPParamGroup, once: some versions know it by both package names."""
        if self._has_param_group:
            return
        self._has_param_group = True
        wraps = {
            "__init__": (self._init, "FSDP2 units"),
            "unshard": (self._unshard, "FSDP2 all-gathers"),
            "wait_for_unshard": (self._wait_for_unshard, "FSDP2 gathered parameters"),
            "_to_sharded": (self._reshard, "FSDP2 reshards"),
            "_to_sharded_post_forward": (self._reshard, "FSDP2 reshards to a smaller mesh"),
            "pre_backward": (self._pre_backward, "FSDP2 backward spans"),
            "post_backward": (self._post_backward, "FSDP2 gradient reductions"),
            "finalize_backward": (self._finalize_backward, "FSDP2 gathers that nobody used"),
            "_prefetch_unshard": (self._prefetch_unshard, "FSDP2 prefetch marks"),
            "_backward_prefetch": (self._backward_prefetch, "FSDP2 prefetch marks"),
        }
        for name, (make, feature) in wraps.items():
            self._patcher.wrap(PARAM_GROUP_MODULES, f"FSDPParamGroup.{name}", make, feature=feature)

    def _install_state(self) -> None:
        """Wrap FSDPState, once."""
        if self._has_state:
            return
        self._has_state = True
        self._patcher.wrap(STATE_MODULES, "FSDPState._lazy_init", self._lazy_init, feature="FSDP2 root module")
        self._patcher.wrap(STATE_MODULES, "FSDPState._pre_forward", self._pre_forward, feature="FSDP2 forward spans")
        self._patcher.wrap(STATE_MODULES, "FSDPState._post_forward", self._post_forward, feature="FSDP2 forward spans")

    def _init(self, original: Original) -> Original:
        def init(group: Any, *args: Any, **kwargs: Any) -> None:
            with self._patcher.guarded("FSDP2 units"):
                for param in args[0] if args else kwargs.get("params", ()):
                    self._recorder.tag(param, Category.UNSHARDED_PARAM, weak=True)
            original(group, *args, **kwargs)
            with self._patcher.guarded("FSDP2 units"):
                self._units.number(group)
                self.tag_shards(group)

        return init

    def tag_shards(self, group: Any) -> None:
        """Tag the shards this rank keeps; called again after lazy init, which may replace them."""
        unit = self._units.number(group)
        for param in group.fsdp_params:
            self._recorder.tag(param._sharded_param_data, Category.PARAM, unit=unit, name=_param_name(param))

    def _unshard(self, original: Original) -> Original:
        def unshard(group: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(group, *args, **kwargs)
            before, start_ns = group._all_gather_result, now()
            unit = self._units.number(group)
            previous, recorder.local.unit = recorder.unit, unit
            try:
                return original(group, *args, **kwargs)
            finally:
                recorder.local.unit = previous
                with self._patcher.guarded("FSDP2 all-gathers"):
                    result = group._all_gather_result
                    if before is None and result is not None:
                        output = result.all_gather_output
                        recorder.tag(output, Category.ALL_GATHER, unit=unit, name="all_gather_output")
                        recorder.span(
                            unit,
                            SpanKind.ALL_GATHER.value,
                            start_ns,
                            size=nbytes(output),
                            prefetch=recorder.prefetch,
                        )

        return unshard

    def _prefetch_unshard(self, original: Original) -> Original:
        """Called by FSDPState for the modules the script named, by `_backward_prefetch` for the default order."""

        def prefetch_unshard(*args: Any, **kwargs: Any) -> Any:
            if self._recorder.prefetch:
                return original(*args, **kwargs)
            with self._prefetching(Prefetch.EXPLICIT):
                return original(*args, **kwargs)

        return prefetch_unshard

    def _backward_prefetch(self, original: Original) -> Original:
        def backward_prefetch(*args: Any, **kwargs: Any) -> Any:
            with self._prefetching(Prefetch.IMPLICIT):
                return original(*args, **kwargs)

        return backward_prefetch

    def _wait_for_unshard(self, original: Original) -> Original:
        def wait_for_unshard(group: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._recorder.enabled or group._all_gather_result is None:
                return original(group, *args, **kwargs)
            start_ns = now()
            out = original(group, *args, **kwargs)
            with self._patcher.guarded("FSDP2 gathered parameters"):
                unit = self._units.number(group)
                size = 0
                for param in group.fsdp_params:
                    for tensor in (*param.all_gather_outputs, *getattr(param, "_unsharded_inner_tensors", ())):
                        size += nbytes(tensor)
                        self._recorder.tag(tensor, Category.UNSHARDED_PARAM, unit=unit, name=_param_name(param))
                self._recorder.span(unit, SpanKind.COPY_OUT.value, start_ns, size=size)
            return out

        return wait_for_unshard

    def _reshard(self, original: Original) -> Original:
        def to_sharded(group: Any, *args: Any, **kwargs: Any) -> Any:
            before, start_ns = group._sharded_state, now()
            out = original(group, *args, **kwargs)
            if self._recorder.enabled and group._sharded_state is not before:
                with self._patcher.guarded("FSDP2 reshards"):
                    size = sum(nbytes(t) for param in group.fsdp_params for t in param.all_gather_outputs)
                    unit = self._units.number(group)
                    self._recorder.span(unit, SpanKind.RESHARD.value, start_ns, size=size)
                    for param in group.fsdp_params:  # resharded to a smaller mesh: a larger shard stays
                        kept = getattr(param, "_sharded_post_forward_param_data", None)
                        if kept is not None:
                            self._recorder.tag(kept, Category.UNSHARDED_PARAM, unit=unit, name=_param_name(param))
            return out

        return to_sharded

    def _pre_backward(self, original: Original) -> Original:
        def pre_backward(group: Any, *args: Any, **kwargs: Any) -> Any:
            if self._recorder.enabled:
                with self._patcher.guarded("FSDP2 backward spans"):
                    self._backward_since.setdefault(self._units.number(group), now())
            return original(group, *args, **kwargs)

        return pre_backward

    def _post_backward(self, original: Original) -> Original:
        def post_backward(group: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(group, *args, **kwargs)
            with self._patcher.guarded("FSDP2 gradient reductions"):
                self._tag_unsharded_grads(group)
            start_ns = now()
            unit = self._units.number(group)
            previous, recorder.local.unit = recorder.unit, unit
            try:
                return original(group, *args, **kwargs)
            finally:
                recorder.local.unit = previous
                with self._patcher.guarded("FSDP2 gradient reductions"):
                    since = self._backward_since.pop(unit, None)
                    if since is not None:
                        recorder.spans.append((unit, SpanKind.BACKWARD.value, since, start_ns, 0, ""))
                        recorder.span(unit, SpanKind.REDUCE.value, start_ns)
                    self._tag_after_reduce(group, unit)

        return post_backward

    def _finalize_backward(self, original: Original) -> Original:
        """At the end of backward a gather whose unit had no backward (all of it frozen) is dropped."""

        def finalize_backward(group: Any, *args: Any, **kwargs: Any) -> Any:
            result, start_ns = group._all_gather_result, now()
            out = original(group, *args, **kwargs)
            if self._recorder.enabled and result is not None and group._all_gather_result is None:
                with self._patcher.guarded("FSDP2 gathers that nobody used"):
                    size = nbytes(result.all_gather_output)
                    self._recorder.span(self._units.number(group), SpanKind.RESHARD.value, start_ns, size=size)
            return out

        return finalize_backward

    def _tag_unsharded_grads(self, group: Any) -> None:
        unit = self._units.number(group)
        for param in group.fsdp_params:
            unsharded = getattr(param, "_unsharded_param", None)
            for grad in (unsharded.grad if unsharded is not None else None, param.unsharded_accumulated_grad):
                if grad is not None:
                    self._recorder.tag(grad, Category.UNSHARDED_GRAD, unit=unit, name=_param_name(param))

    def _tag_after_reduce(self, group: Any, unit: int) -> None:
        # reduce_scatter_state became reduce_scatter_states, a list, in 2.12
        states = getattr(group.comm_ctx, "reduce_scatter_states", None)
        if states is None:
            single = getattr(group.comm_ctx, "reduce_scatter_state", None)
            states = [single] if single is not None else []
        if states:
            self._recorder.tag(
                states[-1].reduce_scatter_input, Category.REDUCE_SCATTER, unit=unit, name="reduce_scatter_input"
            )
        if group._all_reduce_state is not None if hasattr(group, "_all_reduce_state") else False:
            self._recorder.tag(
                group._all_reduce_state.all_reduce_input,
                Category.REDUCE_SCATTER,
                unit=unit,
                name="all_reduce_input",
                weak=True,  # the same storage is often the kept gradient
            )
        for param in group.fsdp_params:
            if param.sharded_param.grad is not None:
                # One storage, the reduction's output, holds the shards of all gradients of the unit.
                self._recorder.tag(param.sharded_param.grad, Category.GRAD, unit=unit, name="reduce_output")
            accumulated = param.unsharded_accumulated_grad
            if accumulated is not None:
                self._recorder.tag(accumulated, Category.UNSHARDED_GRAD, unit=unit, name=_param_name(param))

    def _lazy_init(self, original: Original) -> Original:
        def lazy_init(state: Any, *args: Any, **kwargs: Any) -> Any:
            is_first = state._is_root is None
            out = original(state, *args, **kwargs)
            if is_first and state._is_root:
                with self._patcher.guarded("FSDP2 root module"):
                    for group in _all_groups(state):
                        self._units.names[self._units.number(group)] = clean_name(group._module_fqn or "")
                        self.tag_shards(group)
                    self._on_root(_root_module(state))
            return out

        return lazy_init

    def _pre_forward(self, original: Original) -> Original:
        def pre_forward(state: Any, module: Any, args: Any, kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.enabled:
                return original(state, module, args, kwargs)
            with self._patcher.guarded("FSDP2 forward spans"):
                # Before the first forward nobody knows who the root is, and the root's comes first.
                if state._is_root is not False and not recorder.open_spans and recorder.phase is not Phase.BACKWARD:
                    recorder.in_root = True
                    self._on_forward(module, args, kwargs)
                for group in _groups(state):
                    recorder.open_span_once(self._units.number(group), SpanKind.FORWARD.value)
            return original(state, module, args, kwargs)

        return pre_forward

    def _post_forward(self, original: Original) -> Original:
        def post_forward(state: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(state, *args, **kwargs)
            if self._recorder.enabled:
                with self._patcher.guarded("FSDP2 forward spans"):
                    self._recorder.in_root = self._recorder.in_root and not state._is_root
                    for group in reversed(_groups(state)):
                        self._recorder.close_span(self._units.number(group), SpanKind.FORWARD.value)
                    self._recorder.forward_ends()
            return out

        return post_forward


def _groups(state: Any) -> list[Any]:
    """The parameter groups of a state: a list since 2.13, one or None before."""
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        single = getattr(state, "_fsdp_param_group", None)
        return [single] if single is not None else []
    return list(groups)


def _all_groups(root_state: Any) -> list[Any]:
    return [group for state in root_state._state_ctx.all_states for group in _groups(state)]


def _root_module(state: Any) -> Any:
    modules = getattr(state, "_modules", None)
    return modules[0] if modules else getattr(state, "_module", None)


def _param_name(param: Any) -> str:
    """The parameter's path in the model; '' before lazy init, when nobody knows it yet."""
    return clean_name(getattr(param, "_param_fqn", None) or "")


def describe(group: Any, name: str | None) -> UnitDescription:
    """A group's unit as it is now."""
    params = group.fsdp_params
    shard_size = getattr(group.mesh_info, "shard_mesh_size", None) or 1
    first = params[0] if params else None
    mesh = group.post_forward_mesh_info
    reshard = "no" if mesh is None else ("yes" if mesh is group.mesh_info else str(mesh.shard_mesh_size))
    kept = first._sharded_param_data.dtype if first is not None else None
    # Before lazy init the policy's dtypes are not on the parameters yet.
    gathered = getattr(first, "param_dtype", None) or group.mp_policy.param_dtype or kept
    padded = sum(p._sharded_param_data.numel() for p in params)
    return UnitDescription(
        name=clean_name(name if name is not None else (group._module_fqn or "")),
        kind=UnitKind.FSDP2,
        numel=sum(p._orig_size.numel() for p in params),
        num_params=len(params),
        trainable_numel=sum(p._orig_size.numel() for p in params if p.sharded_param.requires_grad),
        sharded_bytes=sum(nbytes(p._sharded_param_data) for p in params),
        unsharded_bytes=padded * shard_size * (gathered.itemsize if gathered is not None else 0),
        dtype=dtype_text(kept),
        compute_dtype=dtype_text(gathered),
        shard_size=shard_size,
        replicate_size=getattr(group.mesh_info, "replicate_mesh_size", None) or 1,
        reshard_after_forward=reshard,
        sharding="",
    )
