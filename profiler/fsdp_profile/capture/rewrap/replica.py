"""DDP in place of FSDP1 or FSDP2: the script's own module, replicated.

The wrapped module stays the object it is; its class gets a subclass in front that knows FSDP's methods. At the first
forward with gradients the outermost such module is given to torch's DistributedDataParallel, and from then on every
call of it runs as that DDP's forward. Parameters, names and state dicts are the plain module's.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from fsdp_profile.capture.rewrap.context import Context, is_reduced


class Replica:
    """Stands in front of the class of a module that the script gave to FSDP. State lives in the instance's dict."""

    _replica_context: Context
    _replica_active = False
    _replica_dtype: Any = None
    _replica_ddp: Any = None
    _replica_syncs = True
    _replica_ignored: tuple[Any, ...] = ()
    _replica_is_part = False
    """Inside a module that has its DDP."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, as DDP's where it is the outermost and gradients are wanted."""
        torch = sys.modules["torch"]
        if Replica._replica_active or self._replica_is_part:
            if not Replica._replica_active and torch.is_grad_enabled() and not _in_backward():
                call = f"{type(self).__name__.removeprefix('FSDP')}.forward"
                self._replica_context.refuse(call, "it runs outside of the forward of the model that DDP reduces")
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        Replica._replica_active = True
        try:
            with _autocast(self):
                if self._replica_ddp is None and not _wants_gradients(self):
                    return super().__call__(*args, **kwargs)  # type: ignore[misc]
                ddp = self._replica_ddp or _attach(self)
                ddp.require_backward_grad_sync = self._replica_syncs
                with _unused_refused(self):
                    return ddp(*args, **kwargs)
        finally:
            Replica._replica_active = False

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """FSDP1's: backward inside keeps its gradients to itself."""
        before, self._replica_syncs = self._replica_syncs, False
        try:
            yield
        finally:
            self._replica_syncs = before


def replicate(module: Any, front: type[Replica], context: Context) -> Any:
    """Put `front` before the class of a module; the same module comes back."""
    kind = type(module)
    if issubclass(kind, Replica):
        return module
    extra = {"__module__": kind.__module__, "_replica_context": context}
    # As torch names the class of a sharded module: describe_model removes this prefix.
    module.__class__ = type(f"FSDP{kind.__name__}", (front, kind), extra)
    return module


def _attach(module: Any) -> Any:
    """The DDP of an outermost module; made now, before its first forward with gradients."""
    from torch.nn.parallel import DistributedDataParallel

    context = module._replica_context
    inner = [m for m in module.modules() if isinstance(m, Replica)]
    if any(m._replica_ddp is not None for m in inner):
        context.refuse(f"{type(module).__name__}.forward", "a part of this module ran as a model of its own before")
    ignored = {id(p) for m in inner for p in m._replica_ignored}
    if ignored:
        names = [name for name, param in module.named_parameters() if id(param) in ignored]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    device = next(iter(module.parameters())).device
    ddp = DistributedDataParallel(module, device_ids=[device.index] if device.index is not None else None)
    module.__dict__["_replica_ddp"] = ddp
    for part in inner:
        part.__dict__["_replica_is_part"] = part is not module
    return ddp


def _wants_gradients(module: Any) -> bool:
    """Whether there is anything for DDP to reduce: a frozen model has nothing."""
    return bool(sys.modules["torch"].is_grad_enabled()) and any(p.requires_grad for p in module.parameters())


@contextlib.contextmanager
def _unused_refused(module: Any) -> Iterator[None]:
    """FSDP lets a parameter take no part in a loss; DDP, as a script makes it, notices at the next forward."""
    try:
        yield
    except RuntimeError as e:
        if "Expected to have finished reduction" not in str(e):
            raise
        call = f"{type(module).__name__.removeprefix('FSDP')}.forward"
        module._replica_context.refuse(call, "a parameter took no part in the loss, which DDP does not allow")


def _in_backward() -> bool:
    """Whether autograd is running: a checkpoint runs forwards again there (private; present in torch 2.4 .. 2.15)."""
    task = getattr(sys.modules["torch"]._C, "_current_graph_task_id", None)
    return task is not None and int(task()) != -1


@contextlib.contextmanager
def _autocast(module: Any) -> Iterator[None]:
    """FSDP's mixed precision casts parameters; DDP has none, and its scripts run autocast."""
    if not is_reduced(module._replica_dtype):
        yield
        return
    torch = sys.modules["torch"]
    device = next(iter(module.parameters())).device.type
    with torch.autocast(device, dtype=module._replica_dtype):
        yield


def set_precision(module: Any, dtype: Any, context: Context) -> None:
    """Run forward in a lower precision than the parameters are kept in."""
    if is_reduced(dtype):
        module.__dict__["_replica_dtype"] = dtype
        context.note(
            f"mixed precision: autocast to {str(dtype).removeprefix('torch.')} in place of parameters cast by FSDP; "
            "losses agree to that precision"
        )


def whole_tensors(context: Context) -> None:
    """`param.full_tensor()` and `.to_local()` of a parameter that is whole are the parameter.

    Other DTensor methods are refused by name; `hasattr` stays False.
    """
    import torch

    def itself(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
        return tensor

    for name in ("full_tensor", "to_local"):
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, itself)
    for name in ("placements", "device_mesh", "redistribute"):
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, property(_no_dtensor(name, context)))


def _no_dtensor(name: str, context: Context) -> Any:
    def absent(_tensor: Any) -> Any:
        raise AttributeError(
            f"fsdp-profile run --as {context.target.text}: Tensor.{name}: parameters are whole here, not DTensors"
        )

    return absent
