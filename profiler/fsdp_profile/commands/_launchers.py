"""How `run` starts a script: by itself, once for a script that starts its ranks, or as a rank of another launcher."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from fsdp_profile.core import layout
from fsdp_profile.core.errors import UsageError

_LAUNCHERS: Final = ("torchrun", "accelerate", "fabric", "deepspeed")
_RANK_AND_SIZE: Final = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
)
"""Under MPI the script makes RANK of these (accelerate does), or hands them to init_process_group."""


def is_rank(args: argparse.Namespace) -> bool:
    """Whether a launcher (torchrun, srun with RANK, accelerate, mpirun) started this process as one of its ranks.

    If a number of ranks is given, they are started here, even if the environment has the variables of a launcher (as in
    a pod, for its nodes).
    """
    is_told_otherwise = args.nproc_per_node is not None or args.own_launcher
    return _rank_and_size() is not None and not is_told_otherwise


def _rank_and_size() -> tuple[str, int] | None:
    """As the launcher says them; a single task of MPI, or of srun, is none: it is there to start the ranks."""
    for rank, size in _RANK_AND_SIZE:
        found, number = os.environ.get(rank), os.environ.get(size, "")
        if found is not None and number.isdecimal() and (rank == "RANK" or int(number) > 1):
            return found, int(number)
    return None


def is_command(word: str) -> bool:
    """Whether this is a command to run once: on PATH and no file here, or an executable that is no Python script.

    torchrun's own stub is a Python script, and is known by its name.
    """
    path = Path(word)
    if not path.is_file():
        return shutil.which(word) is not None
    if path.suffix == ".py" or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        first = file.readline(200)
    return path.name in _LAUNCHERS or (first.startswith(b"#!") and b"python" not in first)


def as_rank(args: argparse.Namespace, options: Any) -> int:
    """Become the script, recorded: this process is replaced, so that nothing of us stands between it and its launcher.

    Raises:
        OutputError: the run directory holds something else, or cannot be written.
        UsageError: another strategy is asked for where the script itself makes the rank known.
        OSError: the interpreter cannot be started again.
    """
    from fsdp_profile.capture.launch.own_launcher import python_command
    from fsdp_profile.capture.process.join import join_run
    from fsdp_profile.capture.sources.cpu import quiet_kineto

    told = _rank_and_size()
    assert told is not None
    rank, world_size = told
    if options.strategy and "RANK" not in os.environ:
        raise UsageError("--as needs RANK and WORLD_SIZE in the environment; MPI does not set them")
    if layout.ENV_TREE not in os.environ:  # else a `run` around the launcher records this rank already
        run_dir = join_run(
            args.output,
            world_size=world_size,
            script=args.script,
            script_args=args.script_args,
            command=["fsdp-profile", *sys.argv[1:]],
        )
        os.environ |= {
            layout.ENV_RUN_DIR: str(run_dir.resolve()),
            **({layout.ENV_AGENT_PID: str(os.getppid())} if "RANK" in os.environ else {layout.ENV_TREE: "1"}),
            layout.ENV_OPTIONS: options.to_json(),
            "PYTHONPATH": layout.injected_path(os.environ.get("PYTHONPATH")),
        }
        quiet_kineto(os.environ)
        if rank == "0":
            print(f"fsdp-profile: recording into {run_dir}; see it with: fsdp-profile show {run_dir}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    command = python_command(_script(args))
    os.execv(command[0], command)


def command_of(args: argparse.Namespace) -> tuple[list[str], str] | None:
    """The command to run once, and what in it starts the ranks; None where we start them.

    If -n gives a number of ranks, this command starts them.
    """
    from fsdp_profile.capture.launch.own_launcher import LAUNCHER_MODULES, how_it_starts_ranks, python_command

    if not args.module and is_command(args.script):
        path = Path(args.script)
        found = str(path.absolute()) if path.is_file() else str(shutil.which(args.script))
        return [found, *args.script_args], path.name
    if args.module and args.script in LAUNCHER_MODULES:
        return python_command(_script(args)), args.script
    if args.own_launcher:
        return python_command(_script(args)), "--own-launcher says that it"
    if args.module or args.nproc_per_node is not None:
        return None
    word = how_it_starts_ranks(Path(args.script))
    return None if word is None else (python_command(_script(args)), word)


def _script(args: argparse.Namespace) -> list[str]:
    return [*(["-m"] if args.module else []), args.script, *args.script_args]
