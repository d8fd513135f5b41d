"""What the hooks of FSDP1, FSDP2 and DDP have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.capture.units import UnitRegistry
from fsdp_profile.core.schema import Prefetch

Original = Callable[..., Any]


class UnitHooks:
    """Where the hooks record to, and whom they tell.

    `on_root` is told a root module once its units are known, `on_forward` a root's forward that is about to run,
    with its arguments.
    """

    def __init__(
        self,
        patcher: Patcher,
        recorder: Recorder,
        units: UnitRegistry,
        *,
        on_root: Callable[[Any], None],
        on_forward: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
    ) -> None:
        self._patcher = patcher
        self._recorder = recorder
        self._units = units
        self._on_root = on_root
        self._on_forward = on_forward
        self._backward_since: dict[int, int] = {}
        """Unit -> when its pre-backward ran."""

    @contextmanager
    def _prefetching(self, kind: Prefetch) -> Iterator[None]:
        """All-gathers issued inside are for units that come later."""
        local = self._recorder.local
        before, local.prefetch = getattr(local, "prefetch", ""), kind.value
        try:
            yield
        finally:
            local.prefetch = before
