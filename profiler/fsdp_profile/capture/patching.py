"""Wrap functions of torch, and report in one line what is not recorded where a name is missing.

[Note: A hook never raises] The part of a wrapper that is ours runs in `guarded`: its first error is reported on
stderr and kept for the manifest, what it would have recorded is missing, and the wrapped function runs as usual.
"""

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Patcher:
    """Wraps functions, keeps what could not be recorded, and can put every original back."""

    def __init__(self, *, is_late: bool = False) -> None:
        self._is_late = is_late
        """The modules were imported before: names that other modules imported from them are replaced too."""
        self.lost: dict[str, str] = {}
        """Feature -> why it is not recorded."""
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def lose(self, feature: str, why: str) -> None:
        """Note that a feature is not recorded, and warn once on stderr."""
        if feature not in self.lost:
            self.lost[feature] = why
            sys.stderr.write(f"fsdp-profile: {feature} not recorded: {why}\n")

    @contextlib.contextmanager
    def guarded(self, feature: str) -> Iterator[None]:
        """Run our part of a hook; see [Note: A hook never raises]."""
        try:
            yield
        except Exception as e:
            self.lose(feature, f"{type(e).__name__}: {e}".splitlines()[0])

    def wrap(
        self, modules: tuple[str, ...], attribute: str, make: Wrap, *, feature: str, optional: bool = False
    ) -> bool:
        """Replace `attribute` (a dotted name) in the first module that has it by `make(original)`.

        Absent everywhere: the feature is noted as lost, unless `optional`.
        """
        for name in modules:
            module = sys.modules.get(name) or _import(name)
            owner = _owner(module, attribute)
            if owner is None:
                continue
            last = attribute.rsplit(".", 1)[-1]
            static = inspect.getattr_static(owner, last)
            original = static.__func__ if isinstance(static, staticmethod | classmethod) else static
            wrapper = make(original)
            _skip_by_dynamo(wrapper)
            functools.update_wrapper(wrapper, original)
            installed = staticmethod(wrapper) if isinstance(static, staticmethod) else wrapper
            for place in (owner, *(_takers(last, static, owner) if self._is_late and owner is module else ())):
                setattr(place, last, installed)
                self._undo.append((place, last, static, installed))
            return True
        if not optional:
            self.lose(feature, f"{attribute} is not in {modules[0]} of this torch")
        return False

    def remove_all(self) -> None:
        """Put every original back, except where ours was wrapped since: there it stays and does nothing."""
        while self._undo:
            owner, name, original, installed = self._undo.pop()
            if inspect.getattr_static(owner, name, None) is installed:
                setattr(owner, name, original)


def _takers(name: str, function: Any, owner: ModuleType) -> list[ModuleType]:
    """Modules of torch that imported a function by `from module import name`."""
    modules = [module for key, module in list(sys.modules.items()) if key.split(".")[0] == "torch"]
    return [m for m in modules if m is not owner and getattr(m, "__dict__", {}).get(name) is function]


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _owner(module: Any, attribute: str) -> Any:
    owner = module
    *path, last = attribute.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    return owner if owner is not None and callable(getattr(owner, last, None)) else None


def _skip_by_dynamo(function: Callable[..., Any]) -> None:
    """Keep Dynamo from compiling our frame: plain wrappers break FSDP1 under torch.compile (seen on 2.4 .. 2.15)."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined]

        skip_code(function.__code__)
