"""The model that is trained and the tensors that are alive when training begins; read once, at the first forward."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fsdp_profile.capture.recorder import Recorder, nbytes, parts
from fsdp_profile.capture.units import clean_name, dtype_text
from fsdp_profile.capture.wrappers.base import FlatParameter
from fsdp_profile.core.capture_log import PREEXISTING_BLOCKS, as_columns
from fsdp_profile.core.categories import Category


def describe_model(module: Any, flat_parameters: Sequence[FlatParameter]) -> dict[str, Any]:
    """Name, elements, bytes and dtypes of the parameters, unsharded and without padding.

    Flat parameters are counted by the shapes they were made of, FSDP2's DTensors by their global size, quantised ones
    by what they are kept in.
    """
    dtypes: Counter[str] = Counter()
    numel = trainable = count = size = 0
    flat: set[int] = set()
    for param in flat_parameters:
        numel += param.numel
        count += param.num_params
        size += param.numel * param.itemsize
        trainable += param.trainable_numel
        dtypes[param.dtype] += param.numel
        flat |= param.ids
    for param in module.parameters():
        if id(param) in flat:
            continue
        numel += param.numel()
        count += 1
        kept_in = [param] if hasattr(param, "_local_tensor") else parts(param)
        size += sum(nbytes(part) for part in kept_in)
        trainable += param.numel() if param.requires_grad else 0
        dtypes[dtype_text(max(kept_in, key=nbytes).dtype)] += param.numel()
    inner = getattr(module, "_fsdp_wrapped_module", module)
    return {
        "name": type(inner).__name__.removeprefix("FSDP") or type(inner).__name__,
        "numel": numel,
        "trainable_numel": trainable,
        "num_params": count,
        "param_bytes": size,
        "dtypes": dict(dtypes),
    }


def tag_root(module: Any, recorder: Recorder) -> None:
    """Tag what a root module keeps: its buffers, and its parameters, those outside of every unit included.

    Nothing is gathered before a root's first forward, so what its parameters hold now is what this rank keeps.
    """
    for name, buffer in module.named_buffers():
        recorder.tag(buffer, Category.BUFFER, name=clean_name(name))
    for name, param in module.named_parameters():
        recorder.tag(param, Category.PARAM, name=clean_name(name))


def tag_live_tensors(recorder: Recorder) -> None:
    """Tag, weakly, every tensor that is alive when training begins.

    Parameters of modules that nothing wraps (a reference model, a moving average) are kept by this rank like any
    other; the rest is data of the script. Any other tag of the same storage overrides these.
    """
    import torch

    for value in _live_tensors():
        is_param = isinstance(value, torch.nn.Parameter)
        category = Category.PARAM if is_param else Category.INPUT
        recorder.tag(value, category, name="held by the script", weak=True)


def preexisting_blocks() -> dict[str, list[int]]:
    """Blocks of the CPU's allocator that live tensors use, each once: the columns of capture_log.PREEXISTING_BLOCKS.

    Storages that torch did not allocate (numpy arrays, mapped files, shared memory) cannot be resized and are left out.
    """
    sizes: dict[int, int] = {}
    for tensor in _live_tensors():
        for part in parts(tensor):
            with contextlib.suppress(Exception):  # a meta, lazy or functional tensor has no storage
                storage = part.untyped_storage()
                if part.device.type == "cpu" and storage.resizable() and storage.nbytes():
                    sizes[storage.data_ptr()] = storage.nbytes()
    return as_columns(PREEXISTING_BLOCKS, sizes.items())


def tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors in nested lists, tuples and dicts, to a depth of 4."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, depth + 1)


def _live_tensors() -> Iterator[Any]:
    import torch

    is_tensor: dict[type, bool] = {}
    for value in gc.get_objects():
        # Not isinstance: it asks proxies for their __class__, which may run their code.
        kind = type(value)
        if kind not in is_tensor:
            is_tensor[kind] = issubclass(kind, torch.Tensor) and kind.__name__ != "FakeTensor"
        if is_tensor[kind]:
            yield value


def describe_optimizer(optimizer: Any, roots: list[Any]) -> dict[str, Any]:
    """An optimizer's parameters, and those that are in none of the wrapped models: stepping them trains nothing."""
    known = {id(param) for root in roots for param in root.parameters()}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    foreign = [param for param in params if id(param) not in known]
    return {
        "name": type(optimizer).__name__,
        "num_params": len(params),
        "num_foreign": len(foreign),
        "foreign_bytes": sum(nbytes(part) for param in foreign for part in parts(param)),
    }
