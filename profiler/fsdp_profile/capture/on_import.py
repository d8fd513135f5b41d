"""Run a callback right after a module's body, before anybody can `from module import name`."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class OnImport:
    """A finder, first on sys.meta_path, that finds only the modules for which a callback waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}

    def when(self, name: str, callback: Callback) -> None:
        """Call back once `name` is imported; at once if it is."""
        if name in sys.modules:
            _call(callback, sys.modules[name])
            return
        self._waiting.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Part of the import system: the ordinary spec, with a loader that calls back."""
        if name not in self._waiting:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for callback in self._waiting.pop(name, ()):
                _call(callback, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as e:
        sys.stderr.write(f"fsdp-profile: hook on {module.__name__} failed: {type(e).__name__}: {e}\n")


C10D = "torch.distributed.distributed_c10d"
