"""Allocator events of a process whose tensors hold no data: every storage that an operator makes, and its end.

Takes the place of the capture's CPU window, so that a simulated step goes through the same ledger as a recorded one.
A storage is one block from the operator that returned it to its death, or between two calls of `resize_`. What an
operator allocates and frees inside itself is not seen.
"""

import weakref
from pathlib import Path
from time import time_ns
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA_BLOCK_BYTES = 512  # the caching allocator's rounding
_ALIGN_BYTES = 512
_WAIT_TENSOR = "_c10d_functional::wait_tensor"


class StorageLog(TorchDispatchMode):
    """Stands on top of FakeTensorMode. Addresses are placeholders and are never reused."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events: list[tuple[int, int, int, int, str]] = []
        self._alive: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """Storage -> (reference, address, bytes)."""
        self.next_address = 1 << 32
        """Blocks that begin from now on lie at or above."""
        self._allocated_bytes = 0
        self._is_installed = False
        self.is_running = False
        self.is_starting = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note the storages of its results."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor first becomes operators on its local part
        # Of a waited-for collective the fake implementation makes a new tensor; the real one returns its argument.
        out = args[0] if func._schema.name == _WAIT_TENSOR else func(*args, **kwargs or {})
        for value in (out,) if isinstance(out, torch.Tensor) else tree_leaves(out):
            if isinstance(value, torch.Tensor):
                self._note(value.untyped_storage(), value.device.type, func._schema.name)
        return out

    def address_of(self, tensor: Any) -> int:
        """The block of a tensor's storage; one seen for the first time (the script's real data) begins now."""
        storage = tensor.untyped_storage()
        self._note(storage, tensor.device.type, "")
        found = self._alive.get(storage._cdata)
        return found[1] if found is not None else 0

    def blocks_since(self, address: int) -> list[tuple[int, int]]:
        """(address, bytes) of the blocks alive that began when `next_address` was this, or later."""
        return [(found, size) for _, found, size in self._alive.values() if found >= address]

    def _note(self, storage: Any, device: str, operator: str) -> None:
        key = storage._cdata
        if key in self._alive or device == "meta":
            return
        size = _rounded(storage.nbytes(), device)
        address, self.next_address = self.next_address, self.next_address + size + _ALIGN_BYTES
        self.next_address -= self.next_address % _ALIGN_BYTES
        self._alive[key] = (weakref.ref(storage, lambda _: self._died(key)), address, size)
        self._event(address, size, operator)

    def _died(self, key: int) -> None:
        found = self._alive.pop(key, None)
        if found is not None:
            self._event(found[1], -found[2], "")

    def _resized(self, storage: Any) -> None:
        """The block of the old size ends, one of the new size begins."""
        found = self._alive.get(storage._cdata)
        size = storage.nbytes()
        if found is not None and found[2] != size:
            reference, address, before = found
            self._event(address, -before, "")
            address, self.next_address = self.next_address, self.next_address + size + _ALIGN_BYTES
            self._alive[storage._cdata] = (reference, address, size)
            self._event(address, size, "resize_")

    def _event(self, address: int, delta: int, operator: str) -> None:
        if delta:
            self._allocated_bytes += delta
            self._events.append((time_ns(), address, delta, self._allocated_bytes, operator))

    # What the session asks of a window.

    def start(self) -> None:
        """Begin a chunk. The mode stays on for the whole process: what exists must be known."""
        self.is_running = True
        if not self._is_installed:
            self._is_installed = True
            storage: Any = torch.UntypedStorage
            storage.resize_ = _watching_resize(storage.resize_, self)
            # FSDP1 compares addresses to see whether two views share a storage, and whether a storage is freed.
            storage.data_ptr = _placeholder_address(storage.data_ptr, self)
            tensor: Any = FakeTensor
            tensor.data_ptr = lambda value: value.untyped_storage().data_ptr()

    def stop(self, *, trace: Path | None = None) -> dict[str, Any]:
        """End the chunk; its events as the columns of the capture's log. There is no trace of a simulated step."""
        self.is_running = False
        words: dict[str, int] = {"": 0}
        codes = [words.setdefault(event[4], len(words)) for event in self._events]
        columns = {
            name: [event[i] for event in self._events]
            for i, name in enumerate(("t_ns", "address", "delta_bytes", "reported_bytes"))
        }
        num = len(self._events)
        self._events.clear()
        nothing: dict[str, list[int]] = {"name": [], "start_ns": [], "end_ns": [], "thread": []}
        return {
            "words": list(words),
            "allocator": {
                **columns,
                "operator": codes,
                "transport": [-1] * num,
                "site": [0] * num,
                "module": [0] * num,
            },
            "transport": nothing,
            "operators": nothing,
        }

    def pause(self) -> None:
        """Nothing to pause."""

    def add_modules(self, root: Any) -> None:
        """Nothing to add: source lines are not recorded."""


def _watching_resize(original: Any, log: StorageLog) -> Any:
    def resize_(storage: Any, size: int) -> Any:
        out = original(storage, size)
        log._resized(storage)
        return out

    return resize_


def _placeholder_address(original: Any, log: StorageLog) -> Any:
    def data_ptr(storage: Any) -> int:
        found = log._alive.get(storage._cdata)
        if found is None:
            return int(original(storage))
        return found[1] if found[2] else 0

    return data_ptr


def _rounded(size: int, device: str) -> int:
    return size if device == "cpu" else -(-size // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES
