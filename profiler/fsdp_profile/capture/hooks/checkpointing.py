"""Hooks on saving and loading: state dicts of modules and optimizers, torch.save and torch.load, torch DCP.

Public names only. Calls nest (a state dict inside a save, a module's inside its parent's): the outermost one is the
CHECKPOINT phase. Names that a torch version lacks are skipped.
"""

from collections.abc import Callable
from typing import Any

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.core.schema import Phase

Original = Callable[..., Any]

_BASE = {
    "torch.nn.modules.module": ("Module.state_dict", "Module.load_state_dict"),
    "torch.optim.optimizer": ("Optimizer.state_dict", "Optimizer.load_state_dict"),
    "torch": ("save", "load"),
}
ON_IMPORT = {
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": ("load",),
    "torch.distributed.checkpoint.state_dict": (
        "get_state_dict", "get_model_state_dict", "get_optimizer_state_dict", "set_state_dict", "set_model_state_dict",
        "set_optimizer_state_dict",
    ),
    "torch.distributed.fsdp.fully_sharded_data_parallel": (
        "FullyShardedDataParallel.optim_state_dict", "FullyShardedDataParallel.full_optim_state_dict",
        "FullyShardedDataParallel.sharded_optim_state_dict",
    ),
}  # fmt: skip
"""Module -> its functions, wrapped when the script imports it."""


class CheckpointHooks:
    """Marks the outermost call of each as the CHECKPOINT phase."""

    def __init__(self, patcher: Patcher, recorder: Recorder) -> None:
        self._patcher = patcher
        self._recorder = recorder

    def install(self) -> None:
        """Wrap what `import torch` brings."""
        for module, names in _BASE.items():
            self.install_module(module, names)

    def install_module(self, module: str, names: tuple[str, ...]) -> None:
        """Wrap some functions of a module that was imported."""
        for name in names:
            self._patcher.wrap((module,), name, self._marked, feature="checkpoint phase", optional=True)

    def _marked(self, original: Original) -> Original:
        recorder = self._recorder

        def marked(*args: Any, **kwargs: Any) -> Any:
            before = recorder.phase
            if not recorder.enabled or before is Phase.CHECKPOINT:
                return original(*args, **kwargs)
            recorder.enter_phase(Phase.CHECKPOINT)
            try:
                return original(*args, **kwargs)
            finally:
                recorder.enter_phase(before)

        return marked
