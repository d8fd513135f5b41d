"""Placeholder values for scripts that read values of fake tensors: zero, and what follows from zeros.

[Note: Placeholder values] A fake tensor has no data. Where a script reads a value (`loss.item()`, a sampler's list of
indices), it gets 0, 0.0 or False; of scalars made from scalars it gets what the operators make of those, so that
`torch.isfinite(loss)` is true. Every line that read one is recorded: a branch on such a value may go another way.
"""

import contextlib
import math
import sys
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from fsdp_profile.capture.user_code import UserCode


class PlaceholderValues(TorchDispatchMode):
    """Gives zero, or False, where a script reads a value of a fake tensor; remembers where that was."""

    def __init__(self, user_code: UserCode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._user_code = user_code
        self.places: Counter[str] = Counter()
        self._scalars: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """0-dim fake tensor -> its value, as far as it follows from zeros and constants."""
        torch.utils.swap_tensors = self._swap_tensors
        FakeTensor.tolist = self._tolist  # type: ignore[method-assign]
        FakeTensor.__format__ = self._format  # type: ignore[method-assign]
        torch.Tensor.numpy = self._numpy(torch.Tensor.numpy)  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator; a value that depends on data gets a placeholder."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        try:
            out = func(*args, **kwargs or {})
        except DataDependentOutputException:
            self.places[self.user_line()] += 1
            is_scalar = func._schema.name == "aten::_local_scalar_dense"
            return self._value(args[0]) if is_scalar else False
        if isinstance(out, FakeTensor) and out.dim() == 0:
            self._remember(func, args, kwargs or {}, out)
        return out

    def _value(self, tensor: Any) -> Any:
        return self._scalars.get(tensor, _zero(tensor))

    def _remember(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """What scalars make of each other: a script may ask whether its loss, 0 here, is finite."""
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not leaves or any(leaf.dim() for leaf in leaves):
            return
        values = {id(leaf): self._value(leaf) for leaf in leaves}

        def real(leaf: Any) -> Any:
            return torch.tensor(values[id(leaf)], dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf

        with _disable_current_modes(), contextlib.suppress(Exception):
            value = func(*tree_map(real, args), **tree_map(real, kwargs)).item()
            self._scalars[out] = value if math.isfinite(value) else _zero(out)

    @staticmethod
    def _swap_tensors(kept: Any, converted: Any) -> None:
        """`module.to(...)`: a fake parameter that something refers to cannot be swapped, its data can be replaced."""
        if kept is not converted:
            kept.data = converted

    def user_line(self) -> str:
        """'train.py:12 main', the innermost line of the script that is running."""
        frame = sys._getframe()
        while frame is not None:
            if file := self._user_code.shown(frame.f_code.co_filename):
                return f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
            frame = frame.f_back  # type: ignore[assignment]
        return "torch"

    @property
    def _format(self) -> Any:
        """`f"{loss:.3f}"`: of a scalar its value, as of a real tensor."""

        def format_(tensor: Any, spec: str) -> str:
            return format(tensor.item() if tensor.dim() == 0 else str(tensor), spec)

        return format_

    @property
    def _tolist(self) -> Any:
        def tolist(tensor: Any) -> Any:
            self.places[self.user_line()] += 1
            return _zeros(tuple(tensor.shape), _zero(tensor))

        return tolist

    def _numpy(self, original: Any) -> Any:
        def numpy(tensor: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, FakeTensor):
                return original(tensor, **kwargs)
            self.places[self.user_line()] += 1
            with _disable_current_modes():
                return original(torch.zeros(tensor.shape, dtype=tensor.dtype))

        return numpy


def _zero(tensor: Any) -> Any:
    if tensor.dtype is torch.bool:
        return False
    return 0.0 if tensor.is_floating_point() else 0


def _zeros(shape: tuple[int, ...], zero: Any) -> Any:
    return [_zeros(shape[1:], zero) for _ in range(shape[0])] if shape else zero
