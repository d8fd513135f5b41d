"""Optimizer steps found without the script's help, recorded ones and those after the window.

[Note: When a step ends] One optimizer: after its step(). Several (a GAN): after the last of the cycle, which is
known once the first of them steps again; the end of the first cycle is then reported late. An optimizer that is gone
(the model was built anew), or that does not step for long while others do, is of no cycle. An optimizer inside another
(ZeRO, wrappers) counts as one, one inside backward counts at the next forward or zero_grad, and a step that a
GradScaler skipped ends at `GradScaler.update`.
"""

import weakref
from collections.abc import Callable
from typing import Any, Final

from fsdp_profile.capture.recorder import now

_MAX_STEPS_IN_CYCLE = 16
"""Steps of one optimizer after which the others of its cycle are not waited for: a critic takes five steps or so."""

MAX_UNRECORDED_STEPS: Final = 32
"""Enough for a median; the hook rests afterwards."""

Boundary = Callable[[int], None]
"""Called at the end of a step, outside any open record_function of Optimizer.step, with the end in ns."""


class StepTracker:
    """Watches optimizers and calls back at the end of every step."""

    def __init__(self, on_boundary: Boundary) -> None:
        self._on_boundary = on_boundary
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: weakref.ref[Any] | None = None
        self.depth = 0
        """Optimizer steps that are running, one inside another."""
        self.is_by_hand = False
        """The script ends its steps itself: optimizers do not."""
        self._cycle_known = False
        self._cycle: dict[int, weakref.ref[Any]] = {}
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._num_again = 0
        """Steps of optimizers that have stepped in this cycle already."""
        self._pending = False
        self._last_end_ns = 0
        self._scaler_saw_step = True

    def created(self, optimizer: Any) -> None:
        """An optimizer was constructed."""
        self._optimizers.add(optimizer)

    def step_begins(self, optimizer: Any) -> None:
        """Before optimizer.step."""
        self.depth += 1
        if self.depth == 1 and id(optimizer) in self._seen:
            self._num_again += 1
            if not self._cycle_known or self._num_again >= _MAX_STEPS_IN_CYCLE:
                self._cycle_known, self._cycle = True, dict(self._seen)
                self._end_step(self._last_end_ns)

    def step_ends(self, optimizer: Any, *, in_backward: bool) -> None:
        """After optimizer.step, its record_function still open."""
        self.depth -= 1
        if self.depth:
            return
        self._scaler_saw_step = True
        self._last_end_ns, self._last = now(), weakref.ref(optimizer)
        if in_backward:
            self._pending = True
            return
        self._seen[id(optimizer)] = self._last
        if not self._cycle_known and len(self._optimizers) == 1:
            self._cycle_known = True
        if self._cycle_known:
            self._cycle[id(optimizer)] = self._last
            self._cycle = {number: member for number, member in self._cycle.items() if member() is not None}
            self._pending = self._seen.keys() >= self._cycle.keys()

    def nothing_follows(self) -> None:
        """A cycle of optimizers that was never seen to begin again was whole, and so was a step inside backward."""
        if self.depth == 0 and (self._pending or (self._seen and not self._cycle_known)):
            self._end_step(self._last_end_ns)

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that are alive."""
        return list(self._optimizers)

    @property
    def last_optimizer(self) -> Any:
        """The optimizer that stepped last, of several one inside another the outermost; None when there is none."""
        return self._last() if self._last is not None else None

    def scaler_steps(self) -> None:
        """GradScaler.step was called; it may skip the optimizer's."""
        self._scaler_saw_step = False

    def scaler_updates(self) -> None:
        """GradScaler.update was called: a skipped step ends here."""
        if not self._scaler_saw_step:
            self._scaler_saw_step = True
            self._end_step(now())

    def settle(self, *, in_backward: bool) -> None:
        """A place where a pending step may end: after Optimizer.step, at zero_grad, before a forward."""
        if self._pending and self.depth == 0 and not in_backward:
            self._end_step(self._last_end_ns)

    def _end_step(self, end_ns: int) -> None:
        self._pending = False
        self._seen.clear()
        self._num_again = 0
        if not self.is_by_hand:
            self._on_boundary(end_ns)


class UnrecordedSteps:
    """Ends of the steps after the window, in which nothing else is recorded: what a step takes without the capture."""

    def __init__(self) -> None:
        self._optimizer: weakref.ref[Any] | None = None
        self.ends: list[int] = []

    def start(self, optimizer: Any) -> None:
        """Note from now on when the optimizer that ended the last recorded step steps again.

        The hook stays for good: it may not be removed while hooks run, and this is called from one.
        """
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._optimizer = weakref.ref(optimizer)
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if len(self.ends) < MAX_UNRECORDED_STEPS and self._optimizer is not None and self._optimizer() is optimizer:
            self.ends.append(now())
