"""Call stacks of an allocator snapshot, each reduced to its operator and its place in the script."""

from typing import Any, Final

OPERATOR_PREFIX: Final = "at::_ops::"
TORCH_FOLDER: Final = "/torch/"
PYTHON_SUFFIX: Final = ".py"
WORKSPACE_OPERATOR: Final = "workspace"
"""Operator of a block that a CUDA library allocated for itself."""
_WORKSPACE_FRAMES: Final = ("getCurrentCUDABlasHandle", "getCUDABlasLtWorkspace", "getNewWorkspace", "cudnn_workspace")
"""Parts of the names of PyTorch's functions that allocate workspaces (CublasHandlePool.cpp, Conv_v8.cpp)."""


class Stacks:
    """Numbers for distinct stacks.

    Stacks share the dict of a frame, which is looked at once and known by `id`: the snapshot must outlive
    this object.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], int] = {}
        """`(operator, location)` -> number."""
        self._frames: dict[int, tuple[str, str]] = {}

    def number(self, frames: Any) -> int:
        """The stack's number in `rows`, -1 for none."""
        if not frames:
            return -1
        return self.rows.setdefault(self._reduce(frames), len(self.rows))

    def _reduce(self, frames: Any) -> tuple[str, str]:
        operator = location = ""
        for frame in frames:  # innermost first
            found = self._frames.get(id(frame))
            if found is None:
                found = self._frames[id(frame)] = describe_frame(frame)
            operator = operator or found[0]
            location = location or found[1]
            if operator and location:
                break
        return operator, location


def describe_frame(frame: dict[str, Any]) -> tuple[str, str]:
    """`(operator, location)` of one frame, '' where it does not show it.

    The operator is that of ATen or, in stacks of Python only, the function; the location is `file:line` of
    Python code that is not torch's own.

    >>> describe_frame({"name": "at::_ops::mm::call(at::Tensor const&)", "filename": "??", "line": 0})
    ('aten::mm', '')
    >>> describe_frame({"name": "forward", "filename": "/srv/model.py", "line": 7})
    ('forward', '/srv/model.py:7')
    """
    name, filename = clean_text(frame.get("name", "")), clean_text(frame.get("filename", ""))
    if any(part in name for part in _WORKSPACE_FRAMES):
        return WORKSPACE_OPERATOR, ""
    if name.startswith(OPERATOR_PREFIX):
        return "aten::" + name.removeprefix(OPERATOR_PREFIX).partition("::")[0], ""
    if not filename.endswith(PYTHON_SUFFIX):
        return "", ""
    return name, "" if TORCH_FOLDER in filename else f"{filename}:{int(frame.get('line', 0))}"


def clean_text(value: Any) -> str:
    """The value as text that every encoder takes: a pickle can hold half a surrogate pair."""
    return str(value).encode("utf-8", "replace").decode()
