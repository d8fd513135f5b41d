"""What model was trained, as its parameters say; read once, at the first forward."""

from collections import Counter
from typing import Any

from fsdp_profile.capture.recorder import nbytes
from fsdp_profile.capture.units import UnitRegistry, dtype_text


def describe_model(module: Any, units: UnitRegistry) -> dict[str, Any]:
    """Name, elements, bytes and dtypes of the parameters, unsharded and without padding.

    FSDP1's flat parameters are counted by the shapes they were made of, FSDP2's DTensors by their global size.
    """
    dtypes: Counter[str] = Counter()
    numel = trainable = count = size = 0
    flat: set[int] = set()
    for _, owner in units.owners():
        flat_param = getattr(owner, "flat_param", None)
        if flat_param is None or not _belongs(owner, module):
            continue
        elements = sum(shape.numel() for shape in flat_param._shapes)
        kept = getattr(flat_param, "_local_shard", flat_param)
        numel += elements
        count += len(flat_param._shapes)
        size += elements * kept.element_size()
        trainable += elements if flat_param.requires_grad else 0
        dtypes[dtype_text(kept.dtype)] += elements
        flat.update(id(p) for p in (flat_param, *(flat_param._params or ())))
    for param in module.parameters():
        if id(param) in flat:
            continue
        numel += param.numel()
        count += 1
        size += nbytes(param)
        trainable += param.numel() if param.requires_grad else 0
        dtypes[dtype_text(param.dtype)] += param.numel()
    inner = getattr(module, "_fsdp_wrapped_module", module)
    return {
        "name": type(inner).__name__.removeprefix("FSDP") or type(inner).__name__,
        "numel": numel,
        "trainable_numel": trainable,
        "num_params": count,
        "param_bytes": size,
        "dtypes": dict(dtypes),
    }


def _belongs(handle: Any, module: Any) -> bool:
    return any(getattr(m, "_handle", None) is handle for m in module.modules())
