"""Start the ranks of an unmodified script through torchrun's own elastic agent, with the capture in front.

Runs in the launcher's process, not in a rank. Rendezvous, restarts and signals are torchrun's.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdp_profile.capture.options import Options
from fsdp_profile.capture.process.failure_flush import grace
from fsdp_profile.core import layout
from fsdp_profile.core.errors import MissingExtraError, UsageError

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SIGNAL_EXIT = 128  # shells report death by signal n as 128 + n


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How the job ended."""

    exit_code: int
    """For the launcher's own exit: the first failed rank's code, 128 + n for a signal."""
    first_failed_rank: int | None = None
    rank_exit_codes: dict[int, int] = field(default_factory=dict)
    """Exit codes that the agent reported, by global rank; negative for a signal. All 0 when the job succeeded."""
    interrupted_by: int | None = None
    """Signal that ended the launcher itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What torchrun made of its arguments: ready to start."""

    config: Any
    command: Any
    command_args: list[str]


def prepare(*, script: list[str], torchrun_args: list[str]) -> Job:
    """Have torchrun read its arguments; `script` is a path or -m module, then its arguments. Starts nothing.

    Raises:
        MissingExtraError: torch is not installed.
        UsageError: torchrun does not accept its arguments.
    """
    try:
        from torch.distributed.run import config_from_args, get_args_parser
    except ImportError as e:
        raise MissingExtraError("recording a run", "capture") from e
    try:
        args = get_args_parser().parse_args([*torchrun_args, *script])
        _use_free_port(args)
        with _quiet_agent():
            config, command, command_args = config_from_args(args)
    except (ValueError, RuntimeError, AssertionError, SystemExit) as e:
        why = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise UsageError(f"torchrun does not accept {' '.join(torchrun_args)}: {why}") from e
    return Job(config=config, command=command, command_args=command_args)


def launch(job: Job, *, run_dir: Path, options: Options, ranks: Callable[[], list[int]]) -> Outcome:
    """Start the ranks of a job here and wait for their end.

    `ranks` is called afterwards for the global ranks of this node (those that left a folder). The handlers of signals
    that end the job are restored when this returns.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with _environment(run_dir, options), _quiet_agent(), _own_signal_handlers(), grace(run_dir):
        try:
            elastic_launch(config=job.config, entrypoint=job.command)(*job.command_args)
        except ChildFailedError as e:
            return _failed(e)
        except SignalException as e:
            return Outcome(exit_code=SIGNAL_EXIT + int(e.sigval), interrupted_by=int(e.sigval))
        except (ValueError, RuntimeError, ImportError, OSError) as e:  # before any rank: its options do not work
            if ranks():
                raise
            raise UsageError(f"torchrun could not start: {type(e).__name__}: {str(e).splitlines()[0]}") from e
        except KeyboardInterrupt:
            return Outcome(exit_code=SIGNAL_EXIT + int(signal.SIGINT), interrupted_by=int(signal.SIGINT))
    return Outcome(exit_code=0, rank_exit_codes=dict.fromkeys(ranks(), 0))


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """The agent of torch installs handlers that raise and leaves them; put the former ones back."""
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore further signals while tables and the manifest are written."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _use_free_port(args: Any) -> None:
    """One node and no rendezvous given: torchrun's --standalone, so that two runs do not meet on port 29500."""
    if args.nnodes in ("1", "1:1") and not args.rdzv_endpoint and args.rdzv_backend == "static":
        args.standalone = True
        args.rdzv_backend, args.rdzv_endpoint = "c10d", "localhost:0"
        args.rdzv_id = os.urandom(8).hex()


def _failed(error: Any) -> Outcome:
    rank, first = error.get_first_failure()
    codes = {r: int(f.exitcode) for r, f in error.failures.items()}
    code = int(first.exitcode)
    return Outcome(
        exit_code=code if code >= 0 else SIGNAL_EXIT - code, first_failed_rank=int(rank), rank_exit_codes=codes
    )


@contextmanager
def _environment(run_dir: Path, options: Options) -> Iterator[None]:
    """What the ranks inherit; this process gets its own environment back."""
    added = {
        layout.ENV_RUN_DIR: str(run_dir.resolve()),
        layout.ENV_AGENT_PID: str(os.getpid()),
        layout.ENV_OPTIONS: options.to_json(),
        "PYTHONPATH": layout.injected_path(os.environ.get("PYTHONPATH")),
    }
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Keep the agent's log off the script's output; the command reports failures in one line."""
    if os.environ.get("TORCHELASTIC_ERROR_FILE") or os.environ.get("LOGLEVEL"):
        yield
        return
    loggers = [logging.getLogger(f"torch.distributed.{name}") for name in ("elastic", "run")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        sys.stdout.flush()
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
