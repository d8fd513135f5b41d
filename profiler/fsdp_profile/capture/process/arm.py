"""Arm the capture in a rank's process: before the script's first line, or once it has joined a process group."""

import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from fsdp_profile.capture.facts import note_backend
from fsdp_profile.capture.hooks import checkpointing
from fsdp_profile.capture.hooks.training_loop import SHARDED_SCALER
from fsdp_profile.capture.on_import import C10D, OnImport
from fsdp_profile.capture.options import Options
from fsdp_profile.capture.process import gloo_exit
from fsdp_profile.capture.rewrap import install
from fsdp_profile.capture.rewrap.target import parse_target
from fsdp_profile.capture.session import Session
from fsdp_profile.capture.sources.cpu import quiet_kineto
from fsdp_profile.capture.wrappers.base import Wrapper
from fsdp_profile.core import layout

_armed: list[Session] = []

_OWN_CODE = str(Path(__file__).resolve().parents[1])


def arm() -> Session:
    """Record this process as the rank of its environment, from before torch is imported.

    Called by the injected sitecustomize.
    """
    run_dir, options = take_environment()
    quiet_kineto(os.environ)
    session = Session(run_dir, int(os.environ["RANK"]), options)
    _armed.append(session)
    hook_imports(session)
    hide_own_frames()
    return session


def arm_late(run_dir: Path, options: Options) -> Session:
    """Record this process as the rank of its process group, which was just made.

    On CPU, the blocks that tensors use by now are read once. Names that the script itself imported from torch (`from
    torch.distributed import all_reduce`) are not wrapped.

    Raises:
        FileExistsError: the rank was recorded already.
    """
    dist = sys.modules[C10D]
    session = Session(run_dir, dist.get_rank(), options, is_late=True, world_size=dist.get_world_size())
    _armed.append(session)
    note_backend(str(dist.get_backend()))
    hook_imports(session)
    return session


def is_armed() -> bool:
    """Whether this process is or was recorded."""
    return any(session.is_of_this_process for session in _armed)


def take_environment() -> tuple[Path, Options]:
    """The run directory and the options that the launcher left; children of this process do not inherit them."""
    restarts = int(os.environ.get(layout.ENV_RESTARTS, 0))
    run_dir = layout.attempt_dir(Path(os.environ.pop(layout.ENV_RUN_DIR)), restarts)
    options = Options.from_json(os.environ.pop(layout.ENV_OPTIONS, "{}"))
    for name in (layout.ENV_AGENT_PID, layout.ENV_TREE):
        os.environ.pop(name, None)
    return run_dir, options


def hook_imports(session: Session) -> None:
    """Have every hook of a session installed as the modules that it patches are imported."""
    imports = OnImport()
    imports.when(C10D, session.collectives_imported)
    imports.when(C10D, lambda module: _watch_backend(session, module))
    imports.when(C10D, gloo_exit.install)
    for wrapper in session.wrappers:
        for name in wrapper.modules:
            imports.when(name, partial(_install_wrapper, wrapper, name))
    imports.when(SHARDED_SCALER, lambda _: session.loop.install_sharded_scaler())
    for module, names in checkpointing.ON_IMPORT.items():
        imports.when(module, partial(_install_checkpoints, session, names))
    imports.when("torch._dynamo.trace_rules", lambda module: module.add("fsdp_profile"))
    imports.when("torch", session.torch_imported)
    if session.options.strategy:
        install.install(imports, parse_target(session.options.strategy), session.note_rewrap)


def _install_wrapper(wrapper: Wrapper, name: str, _module: ModuleType) -> None:
    wrapper.install(name)


def _install_checkpoints(session: Session, names: tuple[str, ...], module: ModuleType) -> None:
    session.checkpoints.install_module(module.__name__, names)


def _watch_backend(session: Session, module: Any) -> None:
    def make(original: Any) -> Any:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            out = original(*args, **kwargs)
            with session.patcher.guarded("process group"):
                note_backend(str(module.get_backend()))
            return out

        return init_process_group

    session.patcher.wrap((module.__name__,), "init_process_group", make, feature="process group")


def hide_own_frames() -> None:
    """Remove our frames from the tracebacks that Python prints."""
    show = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        shown: BaseException | None = value
        seen: set[int] = set()
        while shown is not None and id(shown) not in seen:
            seen.add(id(shown))
            shown.__traceback__ = _without_own_frames(shown.__traceback__)
            shown = shown.__cause__ or shown.__context__
        show(kind, value, _without_own_frames(traceback))

    sys.excepthook = excepthook


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    first = _skip_own(traceback)
    shown = first
    while shown is not None:
        shown.tb_next = _skip_own(shown.tb_next)
        shown = shown.tb_next
    return first


def _skip_own(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OWN_CODE):
        traceback = traceback.tb_next
    return traceback
