"""The steps after the window, by their ends alone: what a step takes when nothing is recorded, for the receipt."""

import weakref
from typing import Any, Final

from fsdp_profile.capture.recorder import now

MAX_STEPS: Final = 32
"""Enough for a median; the hook rests afterwards."""


class BareSteps:
    """Notes when the optimizer that ended the last recorded step steps again; nothing else is left in the process."""

    def __init__(self) -> None:
        self._optimizer: weakref.ref[Any] | None = None
        self.ends: list[int] = []

    def start(self, optimizer: Any) -> None:
        """Begin, when the window is over. The hook stays: it may not be taken off while hooks run, which is when."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._optimizer = weakref.ref(optimizer)
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if len(self.ends) < MAX_STEPS and self._optimizer is not None and self._optimizer() is optimizer:
            self.ends.append(now())
