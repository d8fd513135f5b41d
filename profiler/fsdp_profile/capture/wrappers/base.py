"""The protocol that every data-parallel wrapper follows: what to patch when, and how its units are described."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.capture.units import UnitRegistry
from fsdp_profile.core.schema import Prefetch
from fsdp_profile.core.units import UnitDescription

Original = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatParameter:
    """Parameters that a wrapper has replaced by one flat parameter, counted as the script built them."""

    numel: int
    num_params: int
    trainable_numel: int
    itemsize: int
    dtype: str
    ids: frozenset[int]
    """`id` of the flat parameter and of the views that took the parameters' places."""


class Wrapper(ABC):
    """The hooks on one data-parallel wrapper of torch, and its units.

    The hooks call `on_root` with a root module once its units are known, and `on_forward` before a root's forward
    runs, with its arguments.
    """

    modules: ClassVar[tuple[str, ...]]
    """Modules of torch to patch once they are imported, before anybody imports names from them."""

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

    @abstractmethod
    def install(self, module: str) -> None:
        """Patch one of `modules`, which was just imported."""

    @abstractmethod
    def owns(self, unit: Any) -> bool:
        """Whether an object that was given a unit's number is a unit of this wrapper."""

    @abstractmethod
    def describe_unit(self, number: int, unit: Any) -> UnitDescription:
        """One of its units as it is now."""

    def describe(self) -> dict[int, UnitDescription]:
        """Every unit that is alive, by its number, as it is now."""
        return {number: self.describe_unit(number, unit) for number, unit in self._units.owners() if self.owns(unit)}

    def flat_parameters(self, root: Any) -> list[FlatParameter]:
        """The flat parameters of a root module; [] for a wrapper that leaves parameters apart."""
        return []

    def tag_grads(self) -> None:  # noqa: B027  most wrappers have nothing to add
        """Tag gradients before an optimizer's step, where their storage is another than after backward."""

    def backward_ended(self) -> None:  # noqa: B027  as above
        """Tag what a backward leaves behind; called after the outermost backward."""

    @contextmanager
    def _prefetching(self, kind: Prefetch) -> Iterator[None]:
        """All-gathers issued inside are for units that come later."""
        local = self._recorder.local
        before, local.prefetch = getattr(local, "prefetch", ""), kind.value
        try:
            yield
        finally:
            local.prefetch = before
