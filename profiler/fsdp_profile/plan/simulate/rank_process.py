"""The process of a simulated rank: rank 0 of N, without the others, and without data.

    python -m fsdp_profile.plan.simulate.rank_process '{"run_dir": ..., "world_size": 8, ...}' train.py --args

The capture records it like any rank, but for the allocator's events: those come from `StorageLog`. With
`fake_tensors` false the tensors are real, and the recording is exactly the capture's own. When the asked number of
steps is over the process ends: what a script does afterwards (saving, evaluating) is not simulated.
"""

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fsdp_profile.capture.options import Options
from fsdp_profile.capture.process.arm import hook_imports
from fsdp_profile.capture.recorder import Recorder, now
from fsdp_profile.capture.session import Session
from fsdp_profile.capture.user_code import UserCode
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT

RESULT = "simulation.json"
"""What the parent reads: {"steps", "failure", "placeholder_reads", "cuda_as_cpu"}."""


class _GroupRecorder(Recorder):
    """Of a process whose group is a fake one."""

    def add_work(self, work: Any) -> None:
        """Every collective is over at once, whatever its work says."""


class _FakeRecorder(_GroupRecorder):
    """Finds the block of a fake tensor where the capture looks for an address."""

    log: Any = None

    def tag(self, tensor: Any, category: Category, *, unit: int = NO_UNIT, name: str = "", weak: bool = False) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if self.log is None or local.device.type == "meta":
            return
        size = local.untyped_storage().nbytes()
        if size and (address := self.log.address_of(local)):
            self.tags.append((now(), address, size, category.value, unit, name, weak))

    def tag_since(self, address: int, category: Category) -> None:
        """Tag every block that began when the log's next address was this, or later."""
        for found, size in self.log.blocks_since(address):
            self.tags.append((now(), found, size, category.value, NO_UNIT, "", False))

    def watch(self, tensor: Any) -> None:
        """Nothing is handed to a transport."""

    def is_quiet(self) -> bool:
        """Always: there is no profiler to stop, and no collective."""
        return True


class _FakeSession(Session):
    """Records storages in place of the allocator."""

    def torch_imported(self, module: Any) -> None:
        from fsdp_profile.plan.simulate.storage_log import StorageLog

        log = StorageLog()
        assert isinstance(self.recorder, _FakeRecorder)
        self.recorder.log = log
        self.windows.cpu = log  # type: ignore[assignment]
        self.loop.install()
        self.checkpoints.install()
        log.start()


class StepsDone(BaseException):
    """The asked number of steps is over. No Exception, so that a script's own handlers let it pass."""


def main(config_text: str, script: list[str]) -> int:
    """Run the script; 0 when the steps were simulated, 1 when it failed before."""
    config = json.loads(config_text)
    run_dir = Path(config["run_dir"])
    steps, fake = int(config["steps"]), bool(config["fake_tensors"])
    os.environ.update(_environment(int(config["world_size"])))
    strategy = config["strategy"] or ""
    options = Options(first_step=0, last_step=steps, kineto=False, buffer_bytes=1 << 50, strategy=strategy)
    session = (
        _FakeSession(run_dir, 0, options, recorder=_FakeRecorder())
        if fake
        else Session(run_dir, 0, options, recorder=_GroupRecorder())
    )
    hook_imports(session)
    user_code = UserCode()
    result: dict[str, Any] = {"failure": None, "placeholder_reads": {}}
    with contextlib.ExitStack() as stack:
        values = _enter_fake_world(stack, session, config, user_code)
        try:
            _run_script(script, session, steps)
        except StepsDone:
            pass
        except BaseException as e:  # noqa: BLE001  whatever ends the script is reported to the parent
            if not (isinstance(e, SystemExit) and not e.code):
                result["failure"] = _failure(e, user_code)
        if values is not None:
            result["placeholder_reads"] = dict(values.places)
    no_cuda = sys.modules.get("fsdp_profile.plan.simulate.no_cuda")
    result["cuda_as_cpu"] = bool(no_cuda is not None and no_cuda.asked)
    result["steps"] = min(session.recorder.step, steps)
    session.process_ends()
    (run_dir / RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0 if result["steps"] else 1)  # no destructors of groups that never were


def _environment(world_size: int) -> dict[str, str]:
    return {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip


def _enter_fake_world(stack: contextlib.ExitStack, session: Session, config: dict[str, Any], own: UserCode) -> Any:
    """Everything that makes this process rank 0 of N; modes are entered innermost last."""
    import torch
    import torch.distributed

    from fsdp_profile.plan.simulate import data_loaders, fake_process_group, no_cuda
    from fsdp_profile.plan.simulate.placeholder_values import PlaceholderValues

    fake = bool(config["fake_tensors"])
    data_loaders.install()
    fake_process_group.install_process_group(int(config["world_size"]), recorder=session.recorder if fake else None)
    if not fake or not torch.distributed.is_available():
        return None
    if not torch.cuda.is_available():
        no_cuda.install()
        stack.enter_context(no_cuda.CudaAsCpu())
    from torch._subclasses.fake_tensor import FakeTensorMode

    stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
    values = PlaceholderValues(own)
    stack.enter_context(values)
    assert isinstance(session.recorder, _FakeRecorder)
    stack.enter_context(session.recorder.log)
    return values


def _run_script(script: list[str], session: Session, steps: int) -> None:
    """The script as `__main__`, up to the end of its last simulated step."""
    path = Path(script[0]).resolve()
    step_ended = session.tracker._on_boundary

    def ended(end_ns: int) -> None:
        step_ended(end_ns)
        if session.recorder.step >= steps:
            raise StepsDone

    session.tracker._on_boundary = ended
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.argv = script
    sys.path.insert(0, str(path.parent))
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)


def _failure(error: BaseException, user_code: UserCode) -> dict[str, str]:
    """Where the script was, the line itself, and what torch said."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if user_code.shown(frame.filename)]
    at = own[-1] if own else None
    text = str(error).strip().splitlines()
    return {
        "where": f"{user_code.shown(at.filename)}:{at.lineno}" if at is not None else "",
        "line": (at.line or "") if at is not None else "",
        "error": f"{type(error).__name__}: {text[0] if text else ''}"[:300],
        "traceback": "".join(traceback.format_exception(error)),
    }


if __name__ == "__main__":
    del sys.path[0]  # `-m` puts the working folder there; the script's own folder takes its place
    main(sys.argv[1], sys.argv[2:])
