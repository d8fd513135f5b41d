"""The sources that record between flushes: the allocator's events, Kineto and the samples of device and host.

A source that fails is switched off, with its reason in `Patcher.lost`; the others go on.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fsdp_profile.capture.facts import has_device
from fsdp_profile.capture.options import Options
from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.capture.sources.cpu import CpuWindow
from fsdp_profile.capture.sources.cuda import CudaHistory, CudaTrace
from fsdp_profile.capture.sources.device import DeviceSampler
from fsdp_profile.capture.sources.host_states import host_states
from fsdp_profile.capture.user_code import UserCode
from fsdp_profile.core.capture_log import KINETO_TRACE, kineto_step_trace

_EVENTS = "allocator events"


class Windows:
    """Starts the sources and takes from them, flush by flush, what a chunk holds."""

    def __init__(self, options: Options, patcher: Patcher, recorder: Recorder, *, folder: Path) -> None:
        self._options = options
        self._patcher = patcher
        self._recorder = recorder
        self._folder = folder
        self.user_code = UserCode() if options.stacks else None
        self.sampler = DeviceSampler(interval_s=options.sample_interval_s)
        self.cpu: CpuWindow | None = None
        self._cuda_history: CudaHistory | None = None
        self._cuda_trace: CudaTrace | None = None
        self._rss_at_flush = 0

    def start(self) -> None:
        """Record allocator events from now on; called when torch has just been imported."""
        import torch

        with self._patcher.guarded(_EVENTS):
            if not self._options.allocator:
                self._patcher.lost[_EVENTS] = "switched off"
            elif has_device(torch):
                self._cuda_history = CudaHistory(
                    max_entries=self._options.max_history_entries, user_code=self.user_code
                )
                self._cuda_history.arm()
            else:
                self.cpu = CpuWindow(user_code=self.user_code)
                self.cpu.start()
        self.sampler.start()

    @property
    def may_stop(self) -> bool:
        """Whether the sources may be stopped now; see [Note: Never stop inside a record_function] in sources.cpu."""
        runs = self.cpu is not None or self._cuda_history is not None or self._cuda_trace is not None
        return not runs or self._recorder.is_quiet()

    @property
    def is_large(self) -> bool:
        """CPU: whether the process has grown by Options.buffer_bytes since the last flush."""
        has_grown = self.sampler.rss_bytes - self._rss_at_flush >= self._options.buffer_bytes
        return has_grown and self.cpu is not None and self.cpu.is_running

    def use_device_of_process(self) -> None:
        """Sample the device that the process has chosen by now, if any."""
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            self.sampler.use_device(str(properties.uuid))

    def take(self, *, step: int, part: int, is_last: bool, models: Iterable[Any], optimizers: Iterable[Any]) -> Any:
        """Stop the sources and return what they recorded, as fields of a CHUNK.

        Args:
            step: the step of the chunk.
            part: how often this step was written before.
            is_last: no flush follows.
            models: the root modules, and
            optimizers: the optimizers whose states may be on the host (CPU offload).
        """
        fields: dict[str, Any] = {}
        with self._switching_off():
            if self.cpu is not None and self.cpu.is_running:
                fields["cpu"] = self.cpu.stop(trace=self._step_trace(step, part))
        with self._switching_off():
            if self._cuda_history is not None:
                fields["cuda"] = self._cuda_history.take()
        with self._patcher.guarded("states on the host"):
            if self._cuda_history is not None and (roots := list(models)):
                fields["host_states"] = host_states(roots, optimizers)
        with self._patcher.guarded("Kineto trace"):
            fields["modules"] = self._turn_cuda_trace(step, is_last=is_last)
        with self._patcher.guarded("device samples"):
            self.sampler.sample()
            fields["device"] = self.sampler.drain()
        return fields

    def resume(self) -> None:
        """Continue to record after a flush."""
        with self._switching_off():
            if self.cpu is not None:
                self.cpu.start()

    def flushed(self) -> None:
        """What was recorded is written: growth is counted from here on."""
        self._rss_at_flush = self.sampler.rss_bytes

    def stop(self) -> None:
        """End the allocator's history, after the last flush."""
        with self._patcher.guarded(_EVENTS):
            if self._cuda_history is not None:
                self._cuda_history.stop()

    @contextlib.contextmanager
    def _switching_off(self) -> Iterator[None]:
        had_failed = _EVENTS in self._patcher.lost
        with self._patcher.guarded(_EVENTS):
            yield
        if _EVENTS in self._patcher.lost and not had_failed:
            self.cpu = self._cuda_history = None

    def _step_trace(self, step: int, part: int) -> Path | None:
        is_wanted = self._options.kineto and self._options.first_step <= step < self._options.last_step
        return self._folder / kineto_step_trace(step, part) if is_wanted else None

    def _turn_cuda_trace(self, step: int, *, is_last: bool) -> dict[str, Any]:
        """CUDA: start Kineto before the window's first step, stop it after the last, and return the modules' calls."""
        if self._cuda_history is None or not self._options.kineto:
            return {}
        is_due = self._options.first_step - 1 <= step < self._options.last_step - 1
        trace, is_over = self._cuda_trace, is_last or step + 1 >= self._options.last_step
        if trace is None and is_due and not is_last:
            self._cuda_trace = CudaTrace(user_code=self.user_code)
            self._cuda_trace.start()
        elif trace is not None and trace.is_running and is_over:
            return trace.stop(trace=self._folder / KINETO_TRACE)
        return {}
