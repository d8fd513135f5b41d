"""Record a process of a tree once it joins a process group, which makes it a rank.

Launchers, parents of `mp.spawn` and data loader workers only wait for that and are not recorded.
"""

import functools
import multiprocessing.process
import multiprocessing.util
import os
import sys
from typing import TYPE_CHECKING, Any

from fsdp_profile.capture.on_import import C10D, OnImport
from fsdp_profile.core import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsdp_profile.capture.session import Session


def wait_for_group(begin: "Callable[[], Session | None]") -> None:
    """Call `begin`, which returns the armed session or None, once this process or a fork of it has a process group."""
    OnImport().when(C10D, lambda module: _watch(module, begin))


def in_tree(*, when_armed: "Callable[[], None]") -> "Session | None":
    """Arm as our launcher's environment variables say; None below a process that was armed already.

    `when_armed` removes the injection from the environment: no child of a rank is a rank.
    """
    from pathlib import Path

    from fsdp_profile.capture.process.arm import arm_late, take_environment
    from fsdp_profile.capture.process.join import place_of_job

    if layout.ENV_RUN_DIR not in os.environ:
        return None
    dist, run_dir = sys.modules[C10D], Path(os.environ[layout.ENV_RUN_DIR])
    place = place_of_job(run_dir, rank=dist.get_rank(), world_size=dist.get_world_size())
    os.environ[layout.ENV_RUN_DIR] = str(place)
    session = arm_late(*take_environment())
    when_armed()
    return session


def _watch(module: Any, begin: "Callable[[], Session | None]") -> None:
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        _begin(begin)
        return out

    module.init_process_group = init_process_group


def _begin(begin: "Callable[[], Session | None]") -> None:
    try:
        session = begin()
    except FileExistsError:
        _say("another process records this rank; this one is not recorded")
    except Exception as e:
        _say(f"nothing is recorded in this process: {type(e).__name__}: {e}")
    else:
        if session is not None and multiprocessing.process.parent_process() is not None:
            # A child of multiprocessing ends without atexit where it was forked.
            multiprocessing.util.Finalize(None, session.process_ends, exitpriority=-1000)


def _say(text: str) -> None:
    sys.stderr.write(f"fsdp-profile: {text}\n")
