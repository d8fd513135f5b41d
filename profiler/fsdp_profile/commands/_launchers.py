"""How `run` starts a script: by itself, once for a script that starts its ranks, or as a rank of another launcher."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from fsdp_profile import layout


def is_rank() -> bool:
    """Whether a launcher (torchrun, srun with RANK, accelerate) started this process as one of its ranks."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def as_rank(args: argparse.Namespace, options: Any) -> int:
    """Become the script, recorded: this process is replaced, so that nothing of us stands between it and its launcher.

    Raises:
        OutputError: the run directory holds something else, or cannot be written.
        OSError: the interpreter cannot be started again.
    """
    from fsdp_profile.capture.join import join_run
    from fsdp_profile.capture.own_launcher import python_command

    if layout.ENV_TREE not in os.environ:  # else a `run` around the launcher records this rank already
        run_dir = join_run(
            args.output,
            world_size=int(os.environ["WORLD_SIZE"]),
            script=args.script,
            script_args=args.script_args,
            command=["fsdp-profile", *sys.argv[1:]],
        )
        os.environ |= {
            layout.ENV_RUN_DIR: str(run_dir.resolve()),
            layout.ENV_AGENT_PID: str(os.getppid()),
            layout.ENV_OPTIONS: options.to_json(),
            "PYTHONPATH": layout.injected_path(os.environ.get("PYTHONPATH")),
        }
        if os.environ["RANK"] == "0":
            print(f"fsdp-profile: recording into {run_dir}; see it with: fsdp-profile show {run_dir}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    command = python_command(_script(args))
    os.execv(command[0], command)


def command_of(args: argparse.Namespace) -> tuple[list[str], str] | None:
    """The command to run once, and what in it starts the ranks; None where we start them.

    A number of ranks given with -n means that we do.
    """
    from fsdp_profile.capture.own_launcher import LAUNCHER_MODULES, how_it_starts_ranks, python_command

    if not args.module and not Path(args.script).is_file():
        return [str(shutil.which(args.script)), *args.script_args], args.script
    if args.module and args.script in LAUNCHER_MODULES:
        return python_command(_script(args)), args.script
    if args.own_launcher:
        return python_command(_script(args)), "--own-launcher says that it"
    if args.module or args.nproc_per_node is not None:
        return None
    found = how_it_starts_ranks(Path(args.script))
    return None if found is None else (python_command(_script(args)), found)


def _script(args: argparse.Namespace) -> list[str]:
    return [*(["-m"] if args.module else []), args.script, *args.script_args]
