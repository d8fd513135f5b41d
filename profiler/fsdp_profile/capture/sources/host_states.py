"""CUDA: parameters, gradients and optimizer states that are kept on the host (CPU offload), beside the device's ledger.

The device's allocator does not see them and pinned memory has no event of its own, so they are counted where they are:
the storages that models and optimizers hold at a flush, each once. Scalars (Adam's step counters) are not counted.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from fsdp_profile.capture.recorder import now, parts
from fsdp_profile.core.capture_log import HOST_STATES, as_columns
from fsdp_profile.core.categories import Category


def host_states(models: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, list[Any]]:
    """The columns of capture_log.HOST_STATES; a row per category and kind of memory that holds anything."""
    t_ns = now()
    totals: dict[tuple[str, bool], int] = {}
    seen: set[int] = set()
    for category, tensor in _held(models, optimizers):
        for part in parts(tensor):
            if part.device.type != "cpu" or part.dim() == 0:
                continue
            storage = part.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                key = (category.value, bool(part.is_pinned()))
                totals[key] = totals.get(key, 0) + storage.nbytes()
    rows = [(t_ns, category, is_pinned, size) for (category, is_pinned), size in sorted(totals.items())]
    return as_columns(HOST_STATES, rows)


def _held(models: Iterable[Any], optimizers: Iterable[Any]) -> Iterator[tuple[Category, Any]]:
    for model in models:
        handles = (getattr(module, "_handle", None) for module in model.modules())
        # FSDP1 keeps the offloaded gradient shard in `FlatParameter._cpu_grad` (2.4 .. 2.15) between steps.
        flat = [handle.flat_param for handle in handles if handle is not None]
        for param in (*flat, *model.parameters()):
            yield Category.PARAM, param
            for grad in (param.grad, getattr(param, "_cpu_grad", None)):
                if grad is not None:
                    yield Category.GRAD, grad
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if hasattr(value, "untyped_storage"):
                    yield Category.OPTIMIZER_STATE, value
