"""Hooks on the training loop itself: backward, recomputation, optimizer steps, original parameters.

All public names but `_recomputation_hook` and `CheckpointFunction` of torch.utils.checkpoint (torch 2.4 .. 2.15) and
the factory around `Optimizer.step`. `checkpoint` itself stays untouched: Dynamo treats that function specially.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder, now
from fsdp_profile.capture.steps import StepTracker
from fsdp_profile.capture.wrappers.base import Wrapper
from fsdp_profile.core.capture_log import RECOMPUTE_REGION
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT, Phase

Original = Callable[..., Any]

SHARDED_SCALER = "torch.distributed.fsdp.sharded_grad_scaler"


class LoopHooks:
    """Phases BACKWARD and OPTIMIZER, tags of gradients and optimizer states, calls to the step tracker."""

    def __init__(
        self,
        patcher: Patcher,
        recorder: Recorder,
        tracker: StepTracker,
        *,
        wrappers: Sequence[Wrapper],
        when_quiet: Callable[[], None],
        first_step: Callable[[Any], None],
    ) -> None:
        self._patcher = patcher
        self._recorder = recorder
        self._tracker = tracker
        self._wrappers = wrappers
        self._when_quiet = when_quiet
        self._first_step = first_step
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles: list[Any] = []
        self._registration: list[Any] = []
        self._phase_before: list[Phase] = []
        self._closure_ran = False
        """A backward ran inside Optimizer.step: its gradients were not there when the step began."""
        self._recomputing: list[tuple[int, int]] = []
        """(start_ns, forwards open at its begin) of the recomputations that are running, outermost first."""

    def install(self) -> None:
        """Install once torch is imported."""
        from torch.nn.modules import module as nn_module
        from torch.optim import optimizer as optim

        self._patcher.wrap(("torch.autograd",), "backward", self._backward, feature="backward phase")
        self._install_recomputation()
        self._handles = [
            optim.register_optimizer_step_pre_hook(self._optimizer_begins),
            optim.register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        self._registration = [
            nn_module.register_module_parameter_registration_hook(self._parameter_registered),
            nn_module.register_module_buffer_registration_hook(self._buffer_registered),
        ]
        owner = ("torch.optim.optimizer",)
        self._patcher.wrap(owner, "Optimizer.__init__", self._optimizer_init, feature="optimizers")
        self._patcher.wrap(owner, "Optimizer.zero_grad", self._zero_grad, feature="step ends at zero_grad")
        # The factory of the wrapper around step(): the only place outside its record_function.
        self._patcher.wrap(owner, "Optimizer.profile_hook_step", self._hook_step, feature="step ends after step()")
        self._patcher.wrap(("torch.amp.grad_scaler",), "GradScaler.step", self._scaler_step, feature="skipped steps")
        self._patcher.wrap(
            ("torch.amp.grad_scaler",), "GradScaler.update", self._scaler_update, feature="skipped steps"
        )
        profiler = ("torch.autograd.profiler",)
        self._patcher.wrap(profiler, "record_function.__enter__", self._region_enters, feature="chunks")
        self._patcher.wrap(profiler, "record_function.__exit__", self._region_exits, feature="chunks")

    def install_sharded_scaler(self) -> None:
        """FSDP1's scaler has an `update` of its own; install once its module is imported."""
        self._patcher.wrap((SHARDED_SCALER,), "ShardedGradScaler.update", self._scaler_update, feature="skipped steps")

    def _install_recomputation(self) -> None:
        owner, feature = ("torch.utils.checkpoint",), "recomputed activations"
        self._patcher.wrap(owner, "_recomputation_hook.__enter__", self._recompute_begins, feature=feature)
        self._patcher.wrap(owner, "_recomputation_hook.__exit__", self._recompute_ends, feature=feature)
        self._patcher.wrap(owner, "CheckpointFunction.backward", self._recompute_reentrant, feature=feature)

    def remove(self) -> None:
        """Take the public hooks off again (the patcher undoes the rest)."""
        for handle in (*self._handles, *self._registration):
            handle.remove()
        self._handles, self._registration = [], []

    def setup_is_over(self) -> None:
        """After the first forward nobody registers the model's own parameters any more."""
        for handle in self._registration:
            handle.remove()
        self._registration = []

    def _parameter_registered(self, _module: Any, name: str, param: Any) -> None:
        if param is not None and self._recorder.enabled:
            with self._patcher.guarded("original parameters"):
                self._recorder.tag(param, Category.UNSHARDED_PARAM, name=name, weak=True)

    def _buffer_registered(self, _module: Any, name: str, buffer: Any) -> None:
        if buffer is not None and self._recorder.enabled:
            with self._patcher.guarded("buffers"):
                self._recorder.tag(buffer, Category.BUFFER, name=name)

    def _backward(self, original: Original) -> Original:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._end_recomputations(0)  # a reentrant checkpoint's own backward: its forward is over
            before = self._recorder.phase
            self._recorder.enter_phase(Phase.BACKWARD)
            try:
                return original(*args, **kwargs)
            finally:
                if before is not Phase.BACKWARD and self._recorder.enabled:
                    with self._patcher.guarded("gradients that wait"):
                        for wrapper in self._wrappers:
                            wrapper.backward_ended()
                is_closure = self._tracker.depth > 0 and before is not Phase.BACKWARD
                self._closure_ran = self._closure_ran or is_closure
                outside = Phase.OPTIMIZER if is_closure else Phase.OTHER
                self._recorder.enter_phase(before if before is Phase.BACKWARD else outside)

        return backward

    def _recompute_begins(self, original: Original) -> Original:
        def enter(hook: Any) -> Any:
            self._begin_recomputation()
            return original(hook)

        return enter

    def _recompute_ends(self, original: Original) -> Original:
        def leave(hook: Any, *exception: Any) -> Any:
            out = original(hook, *exception)
            self._end_recomputations(len(self._recomputing) - 1)
            return out

        return leave

    def _recompute_reentrant(self, original: Original) -> Original:
        """`use_reentrant=True`: forward runs again in this function, up to its own call of backward."""

        def backward(*args: Any, **kwargs: Any) -> Any:
            outer = len(self._recomputing)
            self._begin_recomputation()
            try:
                return original(*args, **kwargs)
            finally:
                self._end_recomputations(outer)

        return backward

    def _begin_recomputation(self) -> None:
        self._recomputing.append((now(), len(self._recorder.open_spans)))

    def _end_recomputations(self, outer: int) -> None:
        """End those begun inside the first `outer`, and the units' forwards in them.

        Recomputation stops early, by an exception, once backward has what it needs: no post-forward runs then.
        """
        while len(self._recomputing) > max(outer, 0):
            start_ns, num_open = self._recomputing.pop()
            if self._recorder.enabled:
                self._recorder.close_spans(down_to=num_open)
                self._recorder.span(NO_UNIT, RECOMPUTE_REGION, start_ns)

    def _optimizer_init(self, original: Original) -> Original:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            with self._patcher.guarded("optimizers"):
                self._tracker.created(optimizer)

        return init

    def _optimizer_begins(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        with self._patcher.guarded("optimizer phase"):
            self._tracker.step_begins(optimizer)
            if self._recorder.enabled and optimizer not in self._stepped:
                self._stepped.add(optimizer)
                self._first_step(optimizer)
            if self._recorder.enabled:
                self._tag_grads_of(optimizer)
            self._phase_before.append(self._recorder.phase)
            self._recorder.enter_phase(Phase.OPTIMIZER)

    def _tag_grads_of(self, optimizer: Any) -> None:
        for wrapper in self._wrappers:
            wrapper.tag_grads()
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._recorder.tag(param.grad, Category.GRAD)

    def _optimizer_ends(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        with self._patcher.guarded("optimizer phase"):
            if self._recorder.enabled:
                if self._closure_ran:
                    self._closure_ran = False
                    self._tag_grads_of(optimizer)
                for state in optimizer.state.values():
                    for name, value in state.items() if isinstance(state, dict) else ():
                        if hasattr(value, "untyped_storage"):
                            self._recorder.tag(value, Category.OPTIMIZER_STATE, name=str(name))
            before = self._phase_before.pop() if self._phase_before else Phase.OTHER
            in_backward = before is Phase.BACKWARD
            self._recorder.enter_phase(before if in_backward else Phase.OTHER)
            self._tracker.step_ends(optimizer, in_backward=in_backward)

    def _region_enters(self, original: Original) -> Original:
        local = self._recorder.local

        def enter(region: Any) -> Any:
            local.record_function_depth = getattr(local, "record_function_depth", 0) + 1
            return original(region)

        return enter

    def _region_exits(self, original: Original) -> Original:
        local = self._recorder.local

        def leave(region: Any, *exception: Any) -> Any:
            out = original(region, *exception)
            local.record_function_depth = max(getattr(local, "record_function_depth", 0) - 1, 0)
            if not self._recorder.enabled:
                self._when_quiet()
            return out

        return leave

    def _hook_step(self, original: Original) -> Original:
        def profile_hook_step(func: Original) -> Original:
            wrapped = original(func)

            @functools.wraps(wrapped)
            def step(*args: Any, **kwargs: Any) -> Any:
                depth, phases = self._tracker.depth, len(self._phase_before)
                try:
                    return wrapped(*args, **kwargs)
                finally:
                    if self._tracker.depth != depth:  # it raised: the post hook was not called
                        self._tracker.depth = depth
                        del self._phase_before[phases:]
                        self._recorder.enter_phase(Phase.OTHER)
                    self._settle()

            return step

        return profile_hook_step

    def _zero_grad(self, original: Original) -> Original:
        def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._settle()
            return original(optimizer, *args, **kwargs)

        return zero_grad

    def _scaler_step(self, original: Original) -> Original:
        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._tracker.scaler_steps()
            return original(scaler, *args, **kwargs)

        return step

    def _scaler_update(self, original: Original) -> Original:
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(scaler, *args, **kwargs)
            with self._patcher.guarded("skipped steps"):
                if self._recorder.enabled:
                    self._tag_scaler(scaler)
                self._tracker.scaler_updates()
            return out

        return update

    def _tag_scaler(self, scaler: Any) -> None:
        """A GradScaler's `_scale` and `_growth_tracker` (torch 2.4 .. 2.15), which untagged count as activations."""
        for name in ("_scale", "_growth_tracker"):
            value = getattr(scaler, name, None)
            if value is not None:
                self._recorder.tag(value, Category.OPTIMIZER_STATE, name=f"GradScaler.{name}")

    def _settle(self) -> None:
        with self._patcher.guarded("step ends"):
            self._tracker.settle(in_backward=self._recorder.phase is Phase.BACKWARD)
