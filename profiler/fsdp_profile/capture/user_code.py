"""Which line of user code an event came from: the innermost one.

User code is what is neither in the standard library, nor in an installed package, nor in this package.
"""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from fsdp_profile.capture.units import clean_name

ROOT: Final = "(root)"
"""The root module's path; '' means no module."""

_FOREIGN: Final = tuple(
    {
        f"{os.sep}site-packages{os.sep}",
        f"{os.sep}dist-packages{os.sep}",
        sysconfig.get_paths()["stdlib"] + os.sep,
        str(Path(__file__).resolve().parents[1]) + os.sep,
    }
)


class UserCode:
    """Finds files of user code and names their lines; each file is looked up once."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._modules: dict[int, str] = {}
        self._folder = str(Path.cwd()) + os.sep

    def add_modules(self, root: Any) -> None:
        """Remember the paths of a model's modules, as the script built them."""
        for name, module in root.named_modules():
            self._modules.setdefault(id(module), clean_name(name) or ROOT)

    def module_of(self, node: Any) -> str:
        """The path of the module that this event calls; '' when it calls none, or none of a model that was added.

        `_ExtraFields_PyCall.module.self_ptr` is the module's address, the same in 2.4 .. 2.15.
        """
        module = getattr(node.extra_fields, "module", None)
        return self._modules.get(int(module.self_ptr), "") if module is not None else ""

    def shown(self, file: str) -> str:
        """A file of user code as it is shown, relative to the working folder where possible; '' for any other file.

        Kineto cuts the entry of sys.path off a file's name: the first entry that has the file is taken.
        """
        found = self._shown.get(file)
        if found is None:
            found = self._shown[file] = self._look_up(file)
        return found

    def _look_up(self, file: str) -> str:
        if not file.endswith(".py") or file.startswith("<"):
            return ""
        path = Path(file)
        if not path.is_absolute():
            folders = (Path(entry or ".") for entry in sys.path)
            path = next((folder / file for folder in folders if (folder / file).exists()), path)
        real = str(path.absolute())
        if not path.exists() or any(part in real for part in _FOREIGN):
            return ""
        return real.removeprefix(self._folder)

    def line_of(self, node: Any) -> str:
        """'train.py:12 forward' of a Python call in Kineto's event tree; '' when it has no line of user code.

        The caller's line is the line that was running; the callee's own is where its function begins. Fields of
        torch._C._profiler._ExtraFields_PyCall and _PyCCall, the same in 2.4 .. 2.15. Names of functions that are gone
        by the time the tree is read may be garbage (seen on 2.13): those have no line.
        """
        try:
            fields = node.extra_fields
            for frame in (fields.caller, getattr(fields, "callsite", None)):
                if frame is not None and (file := self.shown(frame.file_name)):
                    return f"{file}:{frame.line_number} {frame.function_name}"
        except UnicodeDecodeError:
            return ""
        return ""

    def line_of_frames(self, frames: list[dict[str, Any]]) -> str:
        """The line of user code in a CUDA allocator event's stack, innermost frame first."""
        for frame in frames:
            file = self.shown(str(frame.get("filename", "")))
            if file:
                return f"{file}:{frame.get('line', 0)} {frame.get('name', '')}"
        return ""
