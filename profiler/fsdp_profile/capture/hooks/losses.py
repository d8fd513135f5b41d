"""The loss of every backward: what shows that a script trains the same under two strategies.

[Note: A loss is read late] A hook keeps a reference to the scalar that backward was called on, a few bytes, and
does not read it. It is read when the step is written: on CUDA one step later, so that the host does not wait for the
device inside the step; those of the last step when the recording ends.
"""

import math
from typing import Any

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.core.capture_log import LOSSES, as_columns


class LossHooks:
    """Collects the scalars that `backward` is called on."""

    def __init__(self, patcher: Patcher, recorder: Recorder) -> None:
        self._patcher = patcher
        self._recorder = recorder
        self._kept: list[tuple[int, Any]] = []
        """(step, scalar), in order"""

    def install(self) -> None:
        """Install once torch is imported; `Tensor.backward` calls this function too."""
        self._patcher.wrap(("torch.autograd",), "backward", self._backward, feature="losses")

    def _backward(self, original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            # With a gradient given it is not a loss: a checkpoint's backward, a pipeline's stage.
            if self._recorder.enabled and grad_tensors is None:
                with self._patcher.guarded("losses"):
                    one = tensors if hasattr(tensors, "numel") else tensors[0]
                    if one.numel() == 1 and not hasattr(one, "_local_tensor"):
                        self._kept.append((self._recorder.step, one.data))
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    def drain(self, *, step: int, is_last: bool) -> dict[str, list[Any]]:
        """The losses that can be read without waiting, as columns; see [Note: A loss is read late]."""
        ready = [(at, one) for at, one in self._kept if is_last or one.device.type == "cpu" or at < step]
        self._kept = self._kept[len(ready) :]
        values = [(at, float(one)) for at, one in ready]
        # JSON cannot represent NaN and infinity.
        return as_columns(LOSSES, [(at, value if math.isfinite(value) else None) for at, value in values])
