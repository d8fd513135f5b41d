"""Wait, in any process of a tree, until it joins a process group: then it is a rank, and is recorded.

So launchers, parents of `mp.spawn` and data loader workers stay as they are: all that runs in them is this wait.
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
    """Once this process, or one forked from it, has a process group, call `begin`, which arms, or gives None."""
    OnImport().when(C10D, lambda module: _watch(module, begin))


def in_tree(*, when_armed: "Callable[[], None]") -> "Session | None":
    """Arm as the environment says that our launcher left; None below a process that was armed already.

    `when_armed` takes the rest of the injection out of the environment: nothing below a rank is one.
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
