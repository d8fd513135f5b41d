"""One rank's recording: it owns the recorder, the hooks, the windows and the writer, and flushes them.

A flush happens after every step (where [Note: Never stop inside a record_function] allows it) and at the end.
"""

import atexit
import contextlib
import ctypes
import os
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsdp_profile.capture.bare_steps import BareSteps
from fsdp_profile.capture.facts import has_device, library_facts, process_facts
from fsdp_profile.capture.hooks.checkpointing import CheckpointHooks
from fsdp_profile.capture.hooks.collectives import install as install_collectives
from fsdp_profile.capture.hooks.losses import LossHooks
from fsdp_profile.capture.hooks.model import describe_model, describe_optimizer, held_storages, tag_held, tag_kept
from fsdp_profile.capture.hooks.training_loop import LoopHooks
from fsdp_profile.capture.options import Options
from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder, now
from fsdp_profile.capture.sources.cpu import CpuWindow
from fsdp_profile.capture.sources.cuda import CudaHistory, CudaTrace
from fsdp_profile.capture.sources.device import DeviceSampler
from fsdp_profile.capture.sources.host_states import host_states
from fsdp_profile.capture.steps import StepTracker
from fsdp_profile.capture.units import UnitRegistry
from fsdp_profile.capture.user_code import OwnCode
from fsdp_profile.capture.wrappers import WRAPPERS
from fsdp_profile.capture.writer import RawWriter
from fsdp_profile.core.capture_log import KINETO_TRACE, EndReason, Record, kineto_step_trace
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
        self.sampler = DeviceSampler(interval_s=options.sample_interval_s)
        self.bare_steps = BareSteps()
        self.own_code = OwnCode() if options.stacks else None
        self.cpu_window: CpuWindow | None = None
        self.cuda_history: CudaHistory | None = None
        self.cuda_trace: CudaTrace | None = None
        self._flush_ns = 0
        self._resumed_ns = now()
        """End of the last flush: the pause before it belongs to no step."""
        self._resumed_in_step = False
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self._part = 0
        """Of the step under way: how often it was written before its end."""
        self._rss_at_flush = 0
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
        """A forked child records nothing, and must not hang when it ends.

        Destructors of libkineto and of gloo's groups wait for threads that the child does not have (in any process
        that used torch.profiler and forks). So the child never frees its groups, and when it ends by exit() it leaves
        before C++ destructors run; Python has flushed by then.
        """
        self.recorder.enabled = False
        used_profiler, self.cpu_window = self.cpu_window is not None, None
        if used_profiler:
            with contextlib.suppress(OSError, AttributeError):
                libc = ctypes.CDLL(None)
                libc.on_exit(libc._exit, None)
                c10d = sys.modules.get("torch.distributed.distributed_c10d")
                for group in list(c10d._world.pg_map) if c10d is not None else ():
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))

    # The hooks call these.

    def torch_imported(self, _module: Any) -> None:
        """The first moment at which anything can be allocated."""
        import torch

        self.loop.install()
        self.checkpoints.install()
        if self.losses is not None:
            self.losses.install()
        with self.patcher.guarded("allocator events"):
            if not self.options.allocator:
                self.patcher.lost["allocator events"] = "switched off"
            elif has_device(torch):
                self.cuda_history = CudaHistory(max_entries=self.options.max_history_entries, own_code=self.own_code)
                self.cuda_history.arm()
            else:
                self.cpu_window = CpuWindow(own_code=self.own_code)
                self.cpu_window.start()
                if self._is_late:
                    self.writer.write(Record.PREEXISTING_BLOCKS, {"t_ns": now(), **held_storages()})
        self.sampler.start()
        owner = ("torch.autograd.profiler",)
        self.patcher.wrap(owner, "profile._prepare_trace", self._other_profiler, feature="the script's own profiler")

    def _other_profiler(self, original: Any) -> Any:
        """There can be one profiler in a process: the script's own has the right of way."""

        def prepare_trace(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            window = self.cpu_window
            if window is not None and window.is_running and not window.is_starting:
                why = f"the script runs its own torch.profiler, from step {self.recorder.step} on"
                self.patcher.lose("allocator events", why)
                with self.patcher.guarded("allocator events"):
                    self._flush(self.recorder.step, is_last=True)
                self.cpu_window = None
            return original(profiler, *args, **kwargs)

        return prepare_trace

    def tell_rewrap(self, note: str) -> None:
        """What `run --as` did in place of what the script asked for."""
        self.writer.write(Record.REWRAP, {"note": note})

    def collectives_imported(self, _module: Any) -> None:
        """torch.distributed.distributed_c10d is there, not yet its importers."""
        install_collectives(self.patcher, self.recorder)

    def _root_seen(self, module: Any) -> None:
        """The first forward of a root module: what it keeps and what it is."""
        tag_kept(module, self.recorder)
        self._roots.add(module)
        if self.own_code is not None:
            self.own_code.add_modules(module)
        flat = [param for wrapper in self.wrappers for param in wrapper.flat_parameters(module)]
        self.writer.write(Record.MODEL, describe_model(module, flat))

    def _optimizer_seen(self, optimizer: Any) -> None:
        """The first step of an optimizer: which of its parameters no wrapped model has."""
        if self._roots:
            self.writer.write(Record.OPTIMIZER, describe_optimizer(optimizer, list(self._roots)))

    def _forward_begins(self, _module: Any, args: Any, kwargs: Any) -> None:
        """The root module's forward is about to run."""
        self.tracker.settle(in_backward=False)
        recorder = self.recorder
        if not recorder.enabled:
            return
        self._relieve()
        for value in _tensors((args, kwargs)):
            recorder.tag(value, Category.INPUT)
        if recorder.first_forward_ns is None:
            self.loop.setup_is_over()
            with self.patcher.guarded("tensors of the script"):
                tag_held(self.recorder)
                if self._is_late and self.cpu_window is not None:
                    self.writer.write(Record.PREEXISTING_BLOCKS, {"t_ns": now(), **held_storages()})
            self._use_nvml_device()
            recorder.first_forward_ns = now()
            # A killed process writes no end: what it ran on is told now, and again at the end.
            self.writer.write(Record.FIRST_FORWARD, {"t_ns": recorder.first_forward_ns, "facts": library_facts()})
        recorder.enter_phase(Phase.FORWARD if _is_grad_enabled() else Phase.EVALUATION)

    def _relieve(self) -> None:
        """Write inside a step when the recording may have grown too large; see Options.buffer_bytes."""
        grown = self.sampler.rss_bytes - self._rss_at_flush
        window = self.cpu_window
        if grown < self.options.buffer_bytes or window is None or not window.is_running:
            return
        if self.recorder.phase is not Phase.BACKWARD and self.recorder.is_quiet():
            self._flush(self.recorder.step, in_step=True)

    def step_told(self) -> None:
        """The script says that a step ended."""
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
        elif recorder.phase is not Phase.BACKWARD and self._may_flush():
            self._flush(step)
        else:  # the model may be gone when a flush may be made
            with self.patcher.guarded("unit descriptions"):
                self._describe_units()

    def _may_flush(self) -> bool:
        """Nothing of ours runs that must not be stopped now; see [Note: Never stop inside a record_function]."""
        runs = self.cpu_window is not None or self.cuda_history is not None or self.cuda_trace is not None
        return not runs or self.recorder.is_quiet()

    def _close_window(self) -> None:
        """End the recording once it may be stopped; see [Note: Never stop inside a record_function]."""
        if not self._is_closing or self.recorder.phase is Phase.BACKWARD:
            return
        if self._may_flush():
            self._is_closing = False
            self._finish(EndReason.WINDOW_ENDED)
            with self.patcher.guarded("steps after the window"):
                if (optimizer := self.tracker.last_optimizer) is not None:
                    self.bare_steps.start(optimizer)
        elif self.cpu_window is not None:
            self.cpu_window.pause()

    def process_ends(self) -> None:
        """At exit, also after an exception; a forked child that inherited us does nothing."""
        if not self.is_of_this_process:
            return
        failure = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None) or _under_way()
        self.recorder.close_spans()
        self._settle_last_step(failure)
        self._finish(EndReason.PROCESS_ENDED)
        if self.bare_steps.ends:
            self.writer.write(Record.UNRECORDED_STEPS, {"ends": self.bare_steps.ends})
        if failure is not None:
            text = f"{type(failure).__name__}: {failure}".splitlines()
            self.writer.write(Record.FAILURE, {"t_ns": now(), "message": text[0][:500] if text else ""})
        self.writer.write(Record.EXIT, {"t_ns": now()})
        self.writer.close()

    def _settle_last_step(self, failure: BaseException | None) -> None:
        """Nothing follows that would tell that the last step was whole."""
        if failure is None and self.recorder.enabled:
            with self.patcher.guarded("step ends"):
                self.tracker.nothing_follows()

    # Flushing.

    def _flush(self, step: int, *, is_last: bool = False, in_step: bool = False) -> None:
        """Write what was recorded since the last flush; its cost lands in the receipt."""
        start_ns = time.perf_counter_ns()
        chunk: dict[str, Any] = {"step": step, "began_ns": self._resumed_ns, "in_step": in_step}
        if self._resumed_in_step:
            del chunk["began_ns"]  # that pause is inside a step, and part of it
        with self.patcher.guarded("unit descriptions"):
            self._describe_units()
        with self._switching_off("allocator events"):
            if self.cpu_window is not None and self.cpu_window.is_running:
                chunk["cpu"] = self.cpu_window.stop(trace=self._trace_path(step))
        with self._switching_off("allocator events"):
            if self.cuda_history is not None:
                chunk["cuda"] = self.cuda_history.take()
        with self.patcher.guarded("states on the host"):
            if self.cuda_history is not None and self._roots:
                chunk["host_states"] = host_states(list(self._roots), self.tracker.optimizers)
        with self.patcher.guarded("Kineto trace"):
            chunk["modules"] = self._turn_cuda_trace(step, is_last=is_last)
        with self.patcher.guarded("device samples"):
            self.sampler.sample()
            chunk["device"] = self.sampler.drain()
        if self.losses is not None:
            with self.patcher.guarded("losses"):
                chunk["losses"] = self.losses.drain(step=step, is_last=is_last)
        chunk.update(self.recorder.drain())
        chunk["receipt"] = {"hook_events": self.recorder.num_events, "flush_ns": self._flush_ns}
        self.writer.write(Record.CHUNK, chunk)
        if self.writer.error is not None:
            self.patcher.lose("everything from here on", f"cannot write {self.writer.error}")
            self.recorder.enabled = False
        elif not is_last:
            with self._switching_off("allocator events"):
                if self.cpu_window is not None:
                    self.cpu_window.start()
        self._flush_ns += time.perf_counter_ns() - start_ns
        self._resumed_ns = now()
        self._resumed_in_step = in_step
        self._part = self._part + 1 if in_step else 0
        self._rss_at_flush = self.sampler.rss_bytes

    @contextlib.contextmanager
    def _switching_off(self, feature: str) -> Iterator[None]:
        before = set(self.patcher.lost)
        with self.patcher.guarded(feature):
            yield
        if feature in self.patcher.lost and feature not in before:
            self.cpu_window = self.cuda_history = None

    def _trace_path(self, step: int) -> Path | None:
        wanted = self.options.kineto and self.options.first_step <= step < self.options.last_step
        return self.writer.folder / kineto_step_trace(step, self._part) if wanted else None

    def _turn_cuda_trace(self, step: int, *, is_last: bool) -> dict[str, Any]:
        """Start Kineto before the first step of the window and stop it after the last: then the calls of modules."""
        if self.cuda_history is None or not self.options.kineto:
            return {}
        is_due = self.options.first_step - 1 <= step < self.options.last_step - 1
        if self.cuda_trace is None and is_due and not is_last:
            self.cuda_trace = CudaTrace(own_code=self.own_code)
            self.cuda_trace.start()
        elif (
            self.cuda_trace is not None
            and self.cuda_trace.is_running
            and (is_last or step + 1 >= self.options.last_step)
        ):
            return self.cuda_trace.stop(trace=self.writer.folder / KINETO_TRACE)
        return {}

    def _describe_units(self) -> None:
        """Write the units that are new or have changed since they were last described."""
        found = {unit: row for wrapper in self.wrappers for unit, row in wrapper.describe().items()}
        changed = {unit: row for unit, row in found.items() if self._described.get(unit) != row}
        if changed:
            self.writer.write(Record.UNITS, {"units": [{"unit": unit, **asdict(row)} for unit, row in changed.items()]})
            self._described.update(changed)

    def _use_nvml_device(self) -> None:
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            self.sampler.use_device(str(properties.uuid))

    def _finish(self, reason: EndReason) -> None:
        """The last flush; afterwards every hook is off."""
        if self._is_over:
            return
        self._is_over = True
        self.sampler.stop()
        if self.cpu_window is not None and not self.recorder.is_quiet():
            self.patcher.lose(f"allocator events of step {self.recorder.step}", "a collective was still under way")
            self.cpu_window = None
        self._flush(self.recorder.step - (reason is EndReason.WINDOW_ENDED), is_last=True)
        self.recorder.enabled = False
        with self.patcher.guarded("allocator events"):
            if self.cuda_history is not None:
                self.cuda_history.stop()
        self.loop.remove()
        self.patcher.remove_all()
        self.writer.write(
            Record.END,
            {
                "reason": reason,
                "t_ns": now(),
                "lost": self.patcher.lost,
                "why_no_nvml": self.sampler.why_no_nvml,
                "flush_ns": self._flush_ns,
                "hook_events": self.recorder.num_events,
                **library_facts(),
            },
        )


def _under_way() -> BaseException | None:
    """What ends a child of multiprocessing: it comes to its end while the exception is handled.

    `mp.spawn` turns an exception into sys.exit(1), and the exception into what that came from.
    """
    ending = sys.exc_info()[1]
    if isinstance(ending, SystemExit):
        return ending.__context__ if ending.code else None
    return ending


def _is_grad_enabled() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors in nested lists, tuples and dicts, to a small depth."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item, depth + 1)
