"""Calls of torch.distributed, as the host makes them: kind, bytes of the whole array, group, unit.

gloo leaves no `record_param_comms`, so there this is the only source of bytes and groups. Wrapped once, on
distributed_c10d itself, so that names imported from it later are the wrapped ones. torch 2.13 renamed two of them.
"""

from collections.abc import Callable
from typing import Any

from fsdp_profile.capture.patching import Patcher, Wrap
from fsdp_profile.capture.recorder import Recorder, nbytes, now
from fsdp_profile.capture.units import dtype_text
from fsdp_profile.core.schema import NO_UNIT, CollectiveKind, SpanKind

_C10D = ("torch.distributed.distributed_c10d",)

_KINDS = {
    "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
    "all_gather_single": CollectiveKind.ALL_GATHER,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_single": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "broadcast": CollectiveKind.BROADCAST,
    "all_to_all_single": CollectiveKind.ALL_TO_ALL,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "reduce": CollectiveKind.REDUCE,
    "barrier": CollectiveKind.BARRIER,
}

# The gather's output and the scatter's input belong to the unit's call alone; the shards beside them live on.
_WATCHED = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)

_UNIT_SPANS = {
    CollectiveKind.REDUCE_SCATTER: SpanKind.REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE: SpanKind.ALL_REDUCE,
}


# Every method of a process group that returns a Work; the public functions all come through here.
_GROUP_METHODS = (
    "allreduce", "allreduce_coalesced", "reduce", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "alltoall_base", "alltoall", "send", "recv", "recv_anysource", "barrier",
    "broadcast", "_end_coalescing",
)  # fmt: skip


def install(patcher: Patcher, recorder: Recorder) -> None:
    """Wrap every collective of torch.distributed.distributed_c10d, and the works of every process group."""
    owner = ("torch._C._distributed_c10d",)
    for method in _GROUP_METHODS:
        name = f"ProcessGroup.{method}"
        patcher.wrap(owner, name, _registering(recorder), feature="works of collectives", optional=True)
    patcher.wrap(owner, "Work.wait", _waited(recorder), feature="works of collectives", optional=True)
    for name, kind in _KINDS.items():
        patcher.wrap(_C10D, name, _wrapper(patcher, recorder, kind), feature=f"collective {name}", optional=True)


def _registering(recorder: Recorder) -> Wrap:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def issue(*args: Any, **kwargs: Any) -> Any:
            work = original(*args, **kwargs)
            if recorder.enabled and hasattr(work, "is_completed"):
                recorder.add_work(work)
            return work

        return issue

    return make


def _waited(recorder: Recorder) -> Wrap:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(work, *args, **kwargs)
            recorder.forget_work(work)
            return out

        return wait

    return make


def _wrapper(patcher: Patcher, recorder: Recorder, kind: CollectiveKind) -> Wrap:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def collective(*args: Any, **kwargs: Any) -> Any:
            # An alias calls the other function: only the outer call counts.
            if not recorder.enabled or getattr(recorder.local, "in_collective", False):
                return original(*args, **kwargs)
            recorder.local.in_collective = True
            start_ns = now()
            try:
                return original(*args, **kwargs)
            finally:
                recorder.local.in_collective = False
                with patcher.guarded("collectives"):
                    _record(recorder, kind, start_ns, args, kwargs)

        return collective

    return make


def _record(recorder: Recorder, kind: CollectiveKind, start_ns: int, args: Any, kwargs: Any) -> None:
    whole = max((*args, *kwargs.values()), key=_size, default=None)
    size = _size(whole)
    unit = recorder.unit
    if unit != NO_UNIT and kind in _WATCHED and hasattr(whole, "element_size"):
        recorder.watch(whole)
    group_size, name, description = _group_facts(args, kwargs)
    recorder.calls.append(
        (kind.value, start_ns, now(), size, group_size, unit, bool(recorder.prefetch), name, description, _dtype(whole))
    )
    if unit != NO_UNIT and kind in _UNIT_SPANS:
        recorder.span(unit, _UNIT_SPANS[kind].value, start_ns, size=size)


def _size(value: Any) -> int:
    """Bytes of a tensor or of a list of tensors; 0 of anything else."""
    if hasattr(value, "element_size"):
        return nbytes(value)
    if isinstance(value, list | tuple) and value and hasattr(value[0], "element_size"):
        return sum(nbytes(tensor) for tensor in value)
    return 0


def _dtype(value: Any) -> str:
    """'float32' of a tensor or of a list of tensors; '' of anything else."""
    if isinstance(value, list | tuple):
        return _dtype(value[0]) if value else ""
    return dtype_text(getattr(value, "dtype", None))


def _group_facts(args: Any, kwargs: Any) -> tuple[int, str, str]:
    """Size, name and description of the group of a call: the one given, else the default group."""
    group = kwargs.get("group")
    if group is None:
        group = next((a for a in args if _is_group(a)), None)
    if group is None:
        import torch.distributed as dist

        if not dist.is_initialized():
            return 0, "", ""
        group = dist.group.WORLD
    if not _is_group(group):  # this rank is not in it
        return 0, "", ""
    return int(group.size()), str(getattr(group, "group_name", "")), str(getattr(group, "group_desc", ""))


def _is_group(value: Any) -> bool:
    return hasattr(value, "rank") and callable(getattr(value, "size", None)) and not hasattr(value, "element_size")
