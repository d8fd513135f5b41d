"""Open recorded runs in the browser.

Starts Streamlit on 127.0.0.1; nothing leaves this machine and no usage
statistics are sent. RUNS are run directories, bundles or folders of them;
without any: ./runs, then the sample runs that came with the project.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile dashboard`."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUNS", help="runs, bundles, or folders of them")
    parser.add_argument("--port", type=int, metavar="PORT", help="port (default: the first free one from 8501 on)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted; the server takes this process's place, signals and all."""
    import os
    import sys

    from fsdp_profile.commands._opening import read_run
    from fsdp_profile.core.errors import MissingExtraError, OutputError, UsageError
    from fsdp_profile.core.layout import is_bundle, is_run

    if args.port is not None and not 1 <= args.port <= 65535:
        raise UsageError(f"--port {args.port}: not a port; give 1 to 65535")
    try:
        from fsdp_dashboard import launch
    except ImportError as e:
        raise MissingExtraError("the dashboard", "dashboard") from e
    if args.port is not None and not launch.is_free(args.port):
        raise OutputError(f"--port {args.port}: taken by another process; choose another, or leave it out")
    for path in args.runs:
        if is_run(path) or is_bundle(path):
            read_run(path)  # a run that cannot be opened is said here, not in the browser
    command = launch.command(args.runs, port=args.port, browser=not args.no_browser)
    sys.stdout.flush()
    os.execve(command[0], command, launch.environment(args.runs))
