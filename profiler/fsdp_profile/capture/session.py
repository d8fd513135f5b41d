"""One rank's recording: it owns the recorder, the hooks, the sources and the writer, and flushes them.

A flush happens after every step (where [Note: Never stop inside a record_function] allows it) and at the end.
"""

import atexit
import os
import sys
import time
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsdp_profile.capture.endings import failure_at_exit, keep_fork_from_hanging
from fsdp_profile.capture.facts import library_facts, process_facts
from fsdp_profile.capture.hooks.checkpointing import CheckpointHooks
from fsdp_profile.capture.hooks.collectives import install as install_collectives
from fsdp_profile.capture.hooks.losses import LossHooks
from fsdp_profile.capture.hooks.model import (
    describe_model,
    describe_optimizer,
    preexisting_blocks,
    tag_live_tensors,
    tag_root,
    tensors_in,
)
from fsdp_profile.capture.hooks.training_loop import LoopHooks
from fsdp_profile.capture.options import Options
from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder, now
from fsdp_profile.capture.steps import StepTracker, UnrecordedSteps
from fsdp_profile.capture.units import UnitRegistry
from fsdp_profile.capture.windows import Windows
from fsdp_profile.capture.wrappers import WRAPPERS
from fsdp_profile.capture.writer import RawWriter
from fsdp_profile.core.capture_log import EndReason, Record
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase
from fsdp_profile.core.units import UnitDescription


class Session:
    """Everything that records in one rank's process."""

    def __init__(
        self,
        run_dir: Path,
        rank: int,
        options: Options,
        *,
        recorder: Recorder | None = None,
        is_late: bool = False,
        world_size: int | None = None,
    ) -> None:
        self.options = options
        self._is_late = is_late
        self.patcher = Patcher(is_late=is_late)
        self.recorder = recorder or Recorder()
        self.units = UnitRegistry()
        self.tracker = StepTracker(self._step_ended)
        self.writer = RawWriter(run_dir, rank)
        self.windows = Windows(options, self.patcher, self.recorder, folder=self.writer.folder)
        hooks: dict[str, Any] = {"on_root": self._root_seen, "on_forward": self._forward_begins}
        self.wrappers = [wrapper(self.patcher, self.recorder, self.units, **hooks) for wrapper in WRAPPERS]
        self.loop = LoopHooks(
            self.patcher,
            self.recorder,
            self.tracker,
            wrappers=self.wrappers,
            when_quiet=self._close_window,
            first_step=self._optimizer_seen,
        )
        self.checkpoints = CheckpointHooks(self.patcher, self.recorder)
        self.losses = LossHooks(self.patcher, self.recorder) if options.losses else None
        self.unrecorded_steps = UnrecordedSteps()
        self._flush_ns = 0
        self._resumed_ns = now()
        """End of the last flush: the pause before it belongs to no step."""
        self._resumed_in_step = False
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self._part = 0
        """How often the current step was written before its end."""
        self._described: dict[int, UnitDescription] = {}
        self._is_over = False
        self._is_closing = False
        self._pid = os.getpid()
        self.writer.write(Record.RANK, process_facts(rank, world_size))
        atexit.register(self.process_ends)
        os.register_at_fork(after_in_child=self._forked)

    @property
    def is_of_this_process(self) -> bool:
        """False in a fork of the process that it records."""
        return os.getpid() == self._pid

    def _forked(self) -> None:
        """In a forked child: record nothing."""
        self.recorder.enabled = False
        used_profiler, self.windows.cpu = self.windows.cpu is not None, None
        if used_profiler:
            keep_fork_from_hanging()

    # The hooks call these.

    def torch_imported(self, _module: Any) -> None:
        """The first moment at which anything can be allocated."""
        self.loop.install()
        self.checkpoints.install()
        if self.losses is not None:
            self.losses.install()
        self.windows.start()
        with self.patcher.guarded("allocator events"):
            self._note_preexisting_blocks()
        owner = ("torch.autograd.profiler",)
        self.patcher.wrap(owner, "profile._prepare_trace", self._other_profiler, feature="the script's own profiler")

    def _note_preexisting_blocks(self) -> None:
        if self._is_late and self.windows.cpu is not None:
            self.writer.write(Record.PREEXISTING_BLOCKS, {"t_ns": now(), **preexisting_blocks()})

    def _other_profiler(self, original: Any) -> Any:
        """A process has one profiler: where the script starts its own, ours stops."""

        def prepare_trace(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            window = self.windows.cpu
            if window is not None and window.is_running and not window.is_starting:
                why = f"the script runs its own torch.profiler, from step {self.recorder.step} on"
                self.patcher.lose("allocator events", why)
                with self.patcher.guarded("allocator events"):
                    self._flush(self.recorder.step, is_last=True)
                self.windows.cpu = None
            return original(profiler, *args, **kwargs)

        return prepare_trace

    def note_rewrap(self, note: str) -> None:
        """Write what `run --as` did in place of what the script asked for."""
        self.writer.write(Record.REWRAP, {"note": note})

    def collectives_imported(self, _module: Any) -> None:
        """torch.distributed.distributed_c10d was imported; the modules that import from it were not yet."""
        install_collectives(self.patcher, self.recorder)

    def _root_seen(self, module: Any) -> None:
        """The first forward of a root module: tag what it keeps and describe it."""
        tag_root(module, self.recorder)
        self._roots.add(module)
        if self.windows.user_code is not None:
            self.windows.user_code.add_modules(module)
        flat = [param for wrapper in self.wrappers for param in wrapper.flat_parameters(module)]
        self.writer.write(Record.MODEL, describe_model(module, flat))

    def _optimizer_seen(self, optimizer: Any) -> None:
        """The first step of an optimizer: describe it, and which of its parameters no wrapped model has."""
        if self._roots:
            self.writer.write(Record.OPTIMIZER, describe_optimizer(optimizer, list(self._roots)))

    def _forward_begins(self, _module: Any, args: Any, kwargs: Any) -> None:
        """The root module's forward is about to run."""
        self.tracker.settle(in_backward=False)
        recorder = self.recorder
        if not recorder.enabled:
            return
        if self.windows.is_large and recorder.phase is not Phase.BACKWARD and recorder.is_quiet():
            self._flush(recorder.step, in_step=True)
        for value in tensors_in((args, kwargs)):
            recorder.tag(value, Category.INPUT)
        if recorder.first_forward_ns is None:
            self._training_begins()
        torch = sys.modules.get("torch")
        has_grad = torch is None or bool(torch.is_grad_enabled())
        recorder.enter_phase(Phase.FORWARD if has_grad else Phase.EVALUATION)

    def _training_begins(self) -> None:
        self.loop.setup_is_over()
        with self.patcher.guarded("tensors of the script"):
            tag_live_tensors(self.recorder)
            self._note_preexisting_blocks()
        self.windows.use_device_of_process()
        self.recorder.first_forward_ns = now()
        # A killed process writes no END: the facts are written now, and again at the end.
        self.writer.write(Record.FIRST_FORWARD, {"t_ns": self.recorder.first_forward_ns, "facts": library_facts()})

    def end_step(self) -> None:
        """End the step now, as the script asks."""
        self._step_ended(now())

    def end(self) -> None:
        """End the recording, or have it end at the first moment at which it may."""
        if not self._is_over:
            self.recorder.close_spans()
            self._settle_last_step(sys.exc_info()[1])
            self.recorder.enabled = False
            self._is_closing = True
            self._close_window()

    def _step_ended(self, end_ns: int) -> None:
        recorder = self.recorder
        if not recorder.enabled:
            self._close_window()
            return
        recorder.steps.append(end_ns)
        step, recorder.step = recorder.step, recorder.step + 1
        if recorder.step >= self.options.last_step:
            # The hooks rest from here on; the profiler stops at the first moment at which it may.
            recorder.enabled = False
            self._is_closing = True
            self._close_window()
        elif recorder.phase is not Phase.BACKWARD and self.windows.may_stop:
            self._flush(step)
        else:  # the model may be gone when a flush may be made
            with self.patcher.guarded("unit descriptions"):
                self._describe_units()

    def _close_window(self) -> None:
        """End the recording once it may be stopped; see [Note: Never stop inside a record_function]."""
        if not self._is_closing or self.recorder.phase is Phase.BACKWARD:
            return
        if self.windows.may_stop:
            self._is_closing = False
            self._finish(EndReason.WINDOW_ENDED)
            with self.patcher.guarded("steps after the window"):
                if (optimizer := self.tracker.last_optimizer) is not None:
                    self.unrecorded_steps.start(optimizer)
        elif self.windows.cpu is not None:
            self.windows.cpu.pause()

    def process_ends(self) -> None:
        """Write what is left, at exit, also after an exception; does nothing in a fork of the recorded process."""
        if not self.is_of_this_process:
            return
        failure = failure_at_exit()
        self.recorder.close_spans()
        self._settle_last_step(failure)
        self._finish(EndReason.PROCESS_ENDED)
        if self.unrecorded_steps.ends:
            self.writer.write(Record.UNRECORDED_STEPS, {"ends": self.unrecorded_steps.ends})
        if failure is not None:
            text = f"{type(failure).__name__}: {failure}".splitlines()
            self.writer.write(Record.FAILURE, {"t_ns": now(), "message": text[0][:500] if text else ""})
        self.writer.write(Record.EXIT, {"t_ns": now()})
        self.writer.close()

    def _settle_last_step(self, failure: BaseException | None) -> None:
        """No event follows that would show that the last step was whole."""
        if failure is None and self.recorder.enabled:
            with self.patcher.guarded("step ends"):
                self.tracker.nothing_follows()

    # Flushing.

    def _flush(self, step: int, *, is_last: bool = False, in_step: bool = False) -> None:
        """Write what was recorded since the last flush; its cost is added to the receipt."""
        start_ns = time.perf_counter_ns()
        chunk: dict[str, Any] = {"step": step, "in_step": in_step}
        if not self._resumed_in_step:  # a pause inside a step is part of the step
            chunk["began_ns"] = self._resumed_ns
        with self.patcher.guarded("unit descriptions"):
            self._describe_units()
        models, optimizers = self._roots, self.tracker.optimizers
        chunk |= self.windows.take(step=step, part=self._part, is_last=is_last, models=models, optimizers=optimizers)
        if self.losses is not None:
            with self.patcher.guarded("losses"):
                chunk["losses"] = self.losses.drain(step=step, is_last=is_last)
        chunk |= self.recorder.drain()
        chunk["receipt"] = {"hook_events": self.recorder.num_events, "flush_ns": self._flush_ns}
        self.writer.write(Record.CHUNK, chunk)
        if self.writer.error is not None:
            self.patcher.lose("everything from here on", f"cannot write {self.writer.error}")
            self.recorder.enabled = False
        elif not is_last:
            self.windows.resume()
        self._flush_ns += time.perf_counter_ns() - start_ns
        self._resumed_ns = now()
        self._resumed_in_step = in_step
        self._part = self._part + 1 if in_step else 0
        self.windows.flushed()

    def _describe_units(self) -> None:
        """Write the units that are new or have changed since they were last described."""
        found = {unit: row for wrapper in self.wrappers for unit, row in wrapper.describe().items()}
        changed = {unit: row for unit, row in found.items() if self._described.get(unit) != row}
        if changed:
            self.writer.write(Record.UNITS, {"units": [{"unit": unit, **asdict(row)} for unit, row in changed.items()]})
            self._described.update(changed)

    def _finish(self, reason: EndReason) -> None:
        """The last flush; afterwards every hook is off."""
        if self._is_over:
            return
        self._is_over = True
        self.windows.sampler.stop()
        if self.windows.cpu is not None and not self.recorder.is_quiet():
            self.patcher.lose(f"allocator events of step {self.recorder.step}", "a collective was still in flight")
            self.windows.cpu = None
        self._flush(self.recorder.step - (reason is EndReason.WINDOW_ENDED), is_last=True)
        self.recorder.enabled = False
        self.windows.stop()
        self.loop.remove()
        self.patcher.remove_all()
        end = {
            "reason": reason,
            "t_ns": now(),
            "lost": self.patcher.lost,
            "why_no_nvml": self.windows.sampler.why_no_nvml,
            "flush_ns": self._flush_ns,
            "hook_events": self.recorder.num_events,
        }
        self.writer.write(Record.END, {**end, **library_facts()})
