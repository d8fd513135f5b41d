"""Run a launcher, or a script that starts its ranks itself, once; each process below it that joins a group is recorded.

Runs in the launcher's process, as launch/torchrun.py does for ranks that we start.
"""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsdp_profile.capture.launch.torchrun import ENDING_SIGNALS, SIGNAL_EXIT, Outcome
from fsdp_profile.capture.options import Options
from fsdp_profile.capture.process.failure_flush import wait_for_ranks
from fsdp_profile.capture.sources.cpu import quiet_kineto
from fsdp_profile.core import layout

LAUNCHER_MODULES: Final = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "lightning.fabric.cli",
    "deepspeed.launcher.runner",
)
"""Modules that, run with -m, start the ranks."""

_FLAGS_WITH_A_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
_STARTERS: Final = ("spawn", "start_processes", "Process")
_LAUNCHERS: Final = ("torchrun", "accelerate", *LAUNCHER_MODULES)
_LIGHTNING: Final = ("lightning", "pytorch_lightning", "lightning_fabric")
_IN_LIGHTNING: Final = ("Fabric", "Trainer", "LightningCLI")  # each runs the script again for every further rank
_IN_NOTEBOOKS: Final = ("notebook_launcher", "debug_launcher")  # of accelerate
_RUN_COMMANDS: Final = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen")


def how_it_starts_ranks(script: Path) -> str | None:
    """What in a script starts processes that become ranks, by name; None when nothing does.

    Read from its source: calls of torch.multiprocessing's spawn, start_processes and Process, Lightning's Fabric and
    Trainer, launchers' names in commands. For a script that does not parse as Python: None.
    """
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    names, lightning = _names_of_multiprocessing(tree), _names_of_lightning(tree)
    found = (_starter(node, names) or _starter_in_lightning(node, lightning) for node in ast.walk(tree))
    return next((word for word in found if word is not None), None)


def _names_of_multiprocessing(tree: ast.AST) -> dict[str, str]:
    """Name in the script -> what of torch.multiprocessing it is; '' is the module itself."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch.multiprocessing":
                    names[alias.asname or alias.name] = ""
                elif alias.name == "torch":
                    names[f"{alias.asname or alias.name}.multiprocessing"] = ""
        elif isinstance(node, ast.ImportFrom) and node.module == "torch.multiprocessing":
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch":
            names |= {alias.asname or alias.name: "" for alias in node.names if alias.name == "multiprocessing"}
    return names


def _names_of_lightning(tree: ast.AST) -> set[str]:
    """Names in the script of Lightning's packages, and of what was taken from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages = [alias for alias in node.names if alias.name.split(".")[0] in _LIGHTNING]
            names |= {alias.asname or alias.name.split(".")[0] for alias in packages}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _LIGHTNING:
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _starter_in_lightning(node: ast.AST, names: set[str]) -> str | None:
    if not names or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    first, _, rest = ast.unparse(node.func).partition(".")
    last = rest.rpartition(".")[2] or first
    return f"Lightning's {last}" if first in names and last in _IN_LIGHTNING else None


def _starter(node: ast.AST, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.List | ast.Tuple):
        return next((word for word in _words(node.elts) if word in _LAUNCHERS), None)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    called = ast.unparse(node.func)
    owner, _, last = called.rpartition(".")
    if called in _RUN_COMMANDS:
        return next((word for text in _words(node.args) for word in text.split() if word in _LAUNCHERS), None)
    if last in _IN_NOTEBOOKS:
        return last
    what = last if names.get(owner) == "" else names.get(last, "") if not owner else ""
    return f"mp.{what}" if what in _STARTERS else None


def _words(nodes: list[ast.expr]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@dataclass(slots=True)
class _Forwarding:
    """The process that receives the launcher's signals, and the first signal."""

    child: "subprocess.Popen[bytes] | None" = None
    first: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        self.first = self.first if self.first is not None else number
        if self.child is not None and not (number in (signal.SIGINT, signal.SIGQUIT) and _has_terminal()):
            self.child.send_signal(number)  # from a terminal the child has it already


def launch_tree(command: list[str], *, run_dir: Path, options: Options) -> Outcome:
    """Run a command to its end; every process below it that joins a process group is recorded as a rank.

    Signals that end a job are passed on. Nothing is left in this process's environment.
    """
    with _forwarded() as forwarding:
        forwarding.child = subprocess.Popen(command, env=_environment(run_dir, options))
        code = forwarding.child.wait()
        wait_for_ranks(run_dir)
    interrupted_by = forwarding.first if code else None  # otherwise it has ended meanwhile
    return Outcome(exit_code=code if code >= 0 else SIGNAL_EXIT - code, interrupted_by=interrupted_by)


def _has_terminal() -> bool:
    """Whether this process stands in the foreground of a terminal, whose signals go to the whole group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def python_command(script: list[str]) -> list[str]:
    """The command that runs a script, or -m and a module, with this interpreter and the flags it was given.

    `-u` counts: torchrun gives it, and a script that writes unbuffered lets other threads run at every print.
    """
    return [sys.executable, *interpreter_flags(sys.orig_argv), *script]


def interpreter_flags(command: Sequence[str]) -> list[str]:
    """The flags of Python in its own command line, before the script or -m.

    >>> interpreter_flags(["python", "-u", "-X", "dev", "-m", "fsdp_profile", "run", "-n"])
    ['-u', '-X', 'dev']
    """
    flags: list[str] = []
    rest = iter(command[1:])
    for word in rest:
        if not word.startswith("-") or word in ("-m", "-c", "-"):
            break
        flags.append(word)
        if word in _FLAGS_WITH_A_VALUE:
            flags.append(next(rest, ""))
    return flags


def _environment(run_dir: Path, options: Options) -> dict[str, str]:
    given = dict(os.environ)
    quiet_kineto(given)
    return {
        **given,
        layout.ENV_RUN_DIR: str(run_dir.resolve()),
        layout.ENV_OPTIONS: options.to_json(),
        layout.ENV_TREE: "1",
        "PYTHONPATH": layout.injected_path(given.get("PYTHONPATH")),
    }


@contextmanager
def _forwarded() -> Iterator[_Forwarding]:
    forwarding = _Forwarding()
    before = {number: signal.signal(number, forwarding) for number in ENDING_SIGNALS}
    try:
        yield forwarding
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
