"""How the recorded process ends, and how its forks do."""

import contextlib
import ctypes
import sys


def failure_at_exit() -> BaseException | None:
    """The exception that ends this process; None when none does."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None) or _being_handled()


def _being_handled() -> BaseException | None:
    """The exception that ends a child of multiprocessing, which exits while it handles the exception.

    `mp.spawn` turns an exception into sys.exit(1), whose context it then is.
    """
    ending = sys.exc_info()[1]
    if isinstance(ending, SystemExit):
        return ending.__context__ if ending.code else None
    return ending


def keep_fork_from_hanging() -> None:
    """In a forked child of a process that used torch.profiler: let its exit skip C++ destructors.

    Destructors of libkineto and of gloo's groups wait for threads that a forked child does not have (in any process
    that used torch.profiler and forks). So the child never frees its groups, and `exit()` ends it before destructors
    run; Python has flushed its files by then.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        for group in list(c10d._world.pg_map) if c10d is not None else ():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
