"""CPU: allocator events, operators and the transport's work, from torch.profiler, one chunk per flush.

[Note: One chunk per step] The profiler is stopped and started again at every step boundary: its events are then
written, so a killed process keeps its whole steps and memory stays bounded. The allocator's own total runs on
over the gap (seen on 2.13), and in the gap only our code runs, with the garbage collector off.

[Note: Never stop inside a record_function] A RecordFunction that began before a stop and ends after it writes into
buffers the stop has freed and corrupts the heap (seen on 2.13: FSDP1's forward, Optimizer.step, both open
record_functions). So a chunk ends only where none is open on this thread and no asynchronous collective is in
flight; otherwise the chunk continues to the next boundary.

Frees on other threads (gloo's workers) never reach the profiler; the allocator's total keeps counting them.
"""

import gc
import sys
from pathlib import Path
from typing import Any

from fsdp_profile.capture.user_code import UserCode
from fsdp_profile.core.capture_log import ALLOCATOR, MODULE_CALLS, OPERATORS, TRANSPORT, as_columns

_TRANSPORT_PREFIXES = ("c10d::", "gloo:", "nccl:", "mpi:", "ucc:", "xccl:")
_PYTHON_CALLS = ("PyCall", "PyCCall")
_FUNCTIONAL_PREFIX = "_c10d_functional::"


class CpuWindow:
    """One profiler at a time. Errors propagate to the session, which switches the source off."""

    def __init__(self, *, user_code: UserCode | None = None) -> None:
        self._user_code = user_code
        self._profiler: Any = None
        self._is_paused = False
        self.is_starting = False
        """True while our profiler starts, which must not be mistaken for the script's."""

    @property
    def is_running(self) -> bool:
        """Whether events are being recorded now."""
        return self._profiler is not None

    def start(self) -> None:
        """Begin a chunk."""
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=self._user_code is not None
        )
        self.is_starting = True
        try:
            self._profiler.start()
        finally:
            self.is_starting = False

    def stop(self, *, trace: Path | None = None) -> dict[str, Any]:
        """End the chunk; its events as columns. With `trace`, its Kineto trace is written there too."""
        profiler, self._profiler = self._profiler, None
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            profiler.stop()
            if trace is not None:
                profiler.export_chrome_trace(str(trace))
            return event_columns(profiler.profiler.kineto_results.experimental_event_tree(), user_code=self._user_code)
        finally:
            _release(profiler)
            if was_enabled:
                gc.enable()

    def pause(self) -> None:
        """Record no more operators, where this torch can pause (2.5 on); recorded events are kept until `stop`."""
        toggle = getattr(self._profiler, "toggle_collection_dynamic", None)
        if toggle is None or self._is_paused:
            return
        from torch.profiler import ProfilerActivity

        self._is_paused = True
        toggle(enable=False, activities=[ProfilerActivity.CPU])


def _release(profiler: Any) -> None:
    """Free Kineto's buffers now: a torch.profiler.profile sits in reference cycles and would keep them."""
    inner = profiler.profiler
    if inner is not None:
        inner.kineto_results = None
    profiler.profiler = None


def event_columns(roots: list[Any], *, user_code: UserCode | None = None) -> dict[str, Any]:
    """Columns of Kineto's experimental event tree (torch._C._profiler._ProfilerEvent, the same in 2.4 .. 2.15).

    These are capture_log.CPU_TABLES and their `words`. The operator of an allocator event is the innermost one, or the
    functional collective whose result the block is.
    """
    words: dict[str, int] = {}
    allocator: list[tuple[int, int, int, int, int, int, int, int]] = []
    transport: list[tuple[int, int, int, int]] = []
    operators: list[tuple[int, int, int, int]] = []
    stack = [(root, 0, -1, False, 0, 0) for root in roots]
    words[""] = 0
    functional: set[int] = set()
    while stack:
        node, operator, carrier, is_inside, site, module = stack.pop()
        kind = node.tag.name
        if kind == "Allocation":
            fields = node.extra_fields
            sizes = (node.start_time_ns, fields.ptr, fields.alloc_size, fields.total_allocated)
            allocator.append((*sizes, operator, carrier, site, module))
        elif kind in _PYTHON_CALLS:
            line, path = (user_code.line_of(node), user_code.module_of(node)) if user_code is not None else ("", "")
            site = words.setdefault(line, len(words)) if line else site
            module = words.setdefault(path, len(words)) if path else module
        else:
            name = node.name
            code = words.setdefault(name, len(words))
            if name.startswith(_FUNCTIONAL_PREFIX):
                functional.add(code)
            if operator not in functional:
                operator = code
            if name.startswith(_TRANSPORT_PREFIXES):
                carrier, is_inside = len(transport), True
                transport.append((code, node.start_time_ns, node.end_time_ns, node.start_tid))
            elif not is_inside and name.startswith("aten::"):
                is_inside = True
                operators.append((code, node.start_time_ns, node.end_time_ns, node.start_tid))
        stack.extend((child, operator, carrier, is_inside, site, module) for child in node.children)
    order = sorted(range(len(allocator)), key=lambda i: allocator[i][0])
    return {
        "words": list(words),
        "allocator": as_columns(ALLOCATOR, [allocator[i] for i in order]),
        "transport": as_columns(TRANSPORT, transport),
        "operators": as_columns(OPERATORS, operators),
    }


def module_calls(roots: list[Any], user_code: UserCode) -> dict[str, list[Any]]:
    """Columns path, start_ns, end_ns of the calls of known modules in Kineto's event tree, in no order."""
    calls = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.tag.name in _PYTHON_CALLS and (path := user_code.module_of(node)):
            calls.append((path, node.start_time_ns, node.end_time_ns))
        stack.extend(node.children)
    return as_columns(MODULE_CALLS, calls)


def quiet_kineto(environ: Any) -> None:
    """Keep Kineto's start and stop notices off the script's stderr, unless the user chose a log level.

    Must run before torch is imported.
    """
    if "torch" not in sys.modules:
        environ.setdefault("KINETO_LOG_LEVEL", "6")
