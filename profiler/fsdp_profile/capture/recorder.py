"""The lists of tuples that the hooks append to; a flush empties them.

Times are unix nanoseconds (`time.time_ns`), the clock of Kineto and of the allocator's history.
"""

import sys
import threading
import time
import weakref
from typing import Any

from fsdp_profile.core.capture_log import HOOK_TABLES, as_columns
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT, Phase

now = time.time_ns


class Recorder:
    """All events of one rank since the last flush."""

    def __init__(self) -> None:
        self.enabled = True
        self.tags: list[tuple[int, int, int, str, int, str, bool]] = []
        """Rows of capture_log.TAGS."""
        self.spans: list[tuple[int, str, int, int, int, str]] = []
        """Rows of capture_log.SPANS."""
        self.calls: list[tuple[str, int, int, int, int, int, bool, str, str, str]] = []
        """Rows of capture_log.CALLS."""
        self.phases: list[tuple[int, str]] = [(now(), Phase.SETUP.value)]
        """Rows of capture_log.PHASES."""
        self.steps: list[int] = []
        """Ends of optimizer steps."""
        self.phase = Phase.SETUP
        self.step = 0
        self.num_events = 0
        self.first_forward_ns: int | None = None
        self.local = threading.local()
        self.pending_works: list[Any] = []
        """Handles of asynchronous collectives that may not have completed."""
        self.drops: list[tuple[int, int]] = []
        """Rows of capture_log.DROPS."""
        self._watched: dict[int, weakref.ref[Any]] = {}
        self.in_root = False
        """A root's forward is running; it may have no unit of its own."""
        self.open_spans: list[tuple[int, str, int]] = []
        """(unit, kind, start_ns) of module forwards that are running, outermost first"""

    def enter_phase(self, phase: Phase) -> None:
        """Begin a phase now."""
        if phase is not self.phase and self.enabled:
            self.phase = phase
            self.phases.append((now(), phase.value))

    def tag(self, tensor: Any, category: Category, *, unit: int = NO_UNIT, name: str = "", weak: bool = False) -> None:
        """Name what the storage of a tensor is for; tensors without memory of their own are skipped.

        Of a DTensor that is its local part, of a quantized tensor its data and scales. Any other tag of the same block
        overrides a weak one.
        """
        for part in parts(tensor):
            if type(part).__name__ == "FakeTensor":
                continue
            try:
                storage = part.untyped_storage()
                size = storage.nbytes()
                address = storage.data_ptr() if size else 0
            except Exception:
                continue  # a meta, lazy or functional tensor has no address
            if address:
                self.tags.append((now(), address, size, category.value, unit, name, weak))

    def watch(self, tensor: Any) -> None:
        """Note when a tensor is destroyed: the transport may do so, on a thread whose frees are not reported."""
        if tensor.device.type != "cpu" or id(tensor) in self._watched:
            return
        address, key = tensor.untyped_storage().data_ptr(), id(tensor)

        def died(_reference: Any) -> None:
            self._watched.pop(key, None)
            self.drops.append((now(), address))

        self._watched[key] = weakref.ref(tensor, died)

    def span(self, unit: int, kind: str, start_ns: int, *, size: int = 0, prefetch: str = "") -> None:
        """Append a span of a unit that ends now."""
        self.spans.append((unit, kind, start_ns, now(), size, prefetch))

    def open_span(self, unit: int, kind: str) -> None:
        """Open a span: a module's forward begins."""
        self.open_spans.append((unit, kind, now()))

    def open_span_once(self, unit: int, kind: str) -> None:
        """Open a span unless it is open already: a unit of several modules begins with the first of them."""
        if all(opened[:2] != (unit, kind) for opened in self.open_spans):
            self.open_span(unit, kind)

    def close_span(self, unit: int, kind: str) -> None:
        """Close a span, and with it those inside it that an exception cut off."""
        for i in range(len(self.open_spans) - 1, -1, -1):
            if self.open_spans[i][:2] == (unit, kind):
                for inner in self.open_spans[i:]:
                    self.span(inner[0], inner[1], inner[2])
                del self.open_spans[i:]
                return

    def forward_ends(self) -> None:
        """A module's forward is over. After an evaluation of the root no backward follows: the phase ends here."""
        if self.phase is Phase.EVALUATION and not self.open_spans and not self.in_root:
            self.enter_phase(Phase.OTHER)

    def close_spans(self, *, down_to: int = 0) -> None:
        """Close every span but the first `down_to` (after an exception, or at the end of the process)."""
        for unit, kind, start_ns in self.open_spans[down_to:]:
            self.span(unit, kind, start_ns)
        del self.open_spans[down_to:]

    @property
    def unit(self) -> int:
        """The unit on whose behalf this thread communicates now."""
        return int(getattr(self.local, "unit", NO_UNIT))

    @property
    def prefetch(self) -> str:
        """The Prefetch on whose behalf this thread issues an all-gather now; '' when for its own use."""
        return str(getattr(self.local, "prefetch", ""))

    def add_work(self, work: Any) -> None:
        """Keep an asynchronous collective that was issued; completed ones are dropped, and their tensors with them."""
        self.pending_works = [w for w in self.pending_works if not w.is_completed()]
        self.pending_works.append(work)

    def forget_work(self, work: Any) -> None:
        """Drop a collective that is completed."""
        if self.pending_works:
            self.pending_works = [w for w in self.pending_works if w is not work and not w.is_completed()]

    def is_quiet(self) -> bool:
        """Whether no record_function is open on this thread and no asynchronous collective is in flight.

        See [Note: Never stop inside a record_function] in sources.cpu.
        """
        self.pending_works = [work for work in self.pending_works if not work.is_completed()]
        is_open = bool(getattr(self.local, "record_function_depth", 0))
        return not self.pending_works and not is_open and not _functional_works()

    def drain(self) -> dict[str, Any]:
        """Everything since the last flush, as columns; the lists are empty afterwards."""
        tables = {name: as_columns(table, getattr(self, name)) for name, table in HOOK_TABLES.items()}
        taken = {**tables, "steps": list(self.steps)}
        self.num_events += len(self.tags) + len(self.spans) + len(self.calls) + len(self.phases)
        for events in (self.tags, self.spans, self.calls, self.phases, self.drops, self.steps):
            events.clear()
        return taken


def _functional_works() -> int:
    """Functional collectives that were not waited for yet; 0 where torch does not count them (before 2.7)."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    count = getattr(c10d, "_get_work_registry_size", None)
    return int(count()) if count is not None else 0


def parts(tensor: Any) -> list[Any]:
    """The tensors with memory of their own that a tensor is made of: itself, unless it is a wrapper subclass.

    `__tensor_flatten__` names them: DTensor's local part, the data and scales of a quantised tensor.
    """
    local = getattr(tensor, "_local_tensor", tensor)
    flatten = getattr(local, "__tensor_flatten__", None)
    if flatten is None:
        return [local]
    return [part for name in flatten()[0] for part in parts(getattr(local, name))]


def nbytes(tensor: Any) -> int:
    """Bytes of a tensor's elements."""
    return int(tensor.numel() * tensor.element_size())
