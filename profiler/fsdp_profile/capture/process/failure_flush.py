"""Let the other ranks flush their last window when one ran out of memory or was killed.

The elastic agent ends all ranks at once when one fails. A rank whose collective broke with the failed one is then in
the middle of its own exception, and what it recorded since the last step is lost. So, only when a rank's log says
that it ran out of memory, or its process died by a signal (as the kernel's OOM killer sends), the agent's SIGTERM
is delayed until the others have written, by a few seconds at most.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import Record
from fsdp_profile.core.errors import is_out_of_memory

GRACE_S: Final = 5.0
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 64 << 10
_CLOSING: Final = (Record.END, Record.FAILURE)


@contextmanager
def grace(run_dir: Path, *, grace_s: float = GRACE_S) -> Iterator[None]:
    """While open, the agent of this process waits for the ranks' failure flush before it ends them.

    `PContext.close(death_sig, timeout)` of torch.distributed.elastic.multiprocessing.api, torch 2.4 .. 2.15; where it
    is absent nothing waits.
    """
    try:
        from torch.distributed.elastic.multiprocessing.api import PContext
    except ImportError:
        yield
        return
    original = PContext.close

    def close(context: Any, *args: Any, **kwargs: Any) -> None:
        wait_for_failure_flush(run_dir, grace_s=grace_s, num_killed=_num_killed(context))
        original(context, *args, **kwargs)

    PContext.close = close  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        PContext.close = original  # type: ignore[method-assign]


def wait_for_failure_flush(run_dir: Path, *, grace_s: float, num_killed: int = 0) -> bool:
    """Wait for every rank's closing record if one ran out of memory or was killed; returns whether it waited.

    A killed rank writes no closing record.
    """
    logs = _logs(run_dir)
    if not num_killed and not any(_ran_out_of_memory(path) for path in logs):
        return False
    until = time.monotonic() + grace_s
    while time.monotonic() < until and sum(map(_has_end, logs)) < len(logs) - num_killed:
        time.sleep(_POLL_S)
    return True


def wait_for_ranks(run_dir: Path, *, grace_s: float = GRACE_S) -> None:
    """Wait until the ranks' processes have ended: a signal may end their launcher before them."""
    until = time.monotonic() + grace_s
    pids = [pid for path in _logs(run_dir) if (pid := _pid_of(path))]
    while time.monotonic() < until and any(map(_runs, pids)):
        time.sleep(_POLL_S)


def _pid_of(log: Path) -> int:
    """The process that wrote a log, from its first line; 0 when that line is cut short."""
    with log.open("rb") as file:
        try:
            return int(json.loads(file.readline()).get("pid", 0))
        except ValueError:
            return 0


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def first_to_fail(run_dir: Path) -> int | None:
    """The rank whose log has the earliest exception; None when no log has one."""
    failures = (
        (record["t_ns"], rank)
        for rank in layout.ranks_in(run_dir)
        if layout.capture_log(run_dir, rank).exists()
        for record in _last_records(layout.capture_log(run_dir, rank))
        if record["kind"] == Record.FAILURE
    )
    return min(failures, default=(0, None))[1]


def _num_killed(context: Any) -> int:
    """Ranks of the agent that died by a signal; `subprocess_handlers` of SubprocessContext, torch 2.4 .. 2.15."""
    handlers = getattr(context, "subprocess_handlers", {})
    codes = [getattr(getattr(handler, "proc", None), "returncode", None) for handler in handlers.values()]
    return sum(code is not None and code < 0 for code in codes)


def _logs(run_dir: Path) -> list[Path]:
    found = (layout.capture_log(run_dir, rank) for rank in layout.ranks_in(run_dir))
    return [path for path in found if path.exists()]


def _last_records(path: Path) -> list[dict[str, Any]]:
    """The closing records among the last lines of a log."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().splitlines()
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # cut off at the front, or being written
            continue
        if isinstance(record, dict) and record.get("kind") in _CLOSING:
            records.append(record)
    return records


def _ran_out_of_memory(path: Path) -> bool:
    return any(is_out_of_memory(str(record.get("message", ""))) for record in _last_records(path))


def _has_end(path: Path) -> bool:
    return bool(_last_records(path))
