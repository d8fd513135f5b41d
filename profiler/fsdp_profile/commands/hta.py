"""Run Holistic Trace Analysis over a run's Kineto traces, beside our own numbers.

Overlap, idle and compute time of both, rank by rank, with the reason where they
differ; then HTA's temporal breakdown, overlap, idle time and kernel breakdown as
they are, from HTA itself in a process of its own. Needs the extra [hta] and a
run with device activity; where HTA fails on a trace, its own words are shown.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile hta`."""
    parser.add_argument("run_path", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument(
        "--traces",
        metavar="FOLDER",
        type=Path,
        help="where the traces of an imported run lie (default: where they lay when they were imported)",
    )


def run(args: argparse.Namespace) -> int:
    """Print both; 1 if HTA gave no table at all."""
    from fsdp_profile.analysis.hta.comparison import ours_by_rank
    from fsdp_profile.analysis.hta.runner import device_traces, tables_of_traces
    from fsdp_profile.commands._opening import damage, open_run
    from fsdp_profile.render.terminal.console import console
    from fsdp_profile.render.terminal.hta import hta_report

    found = open_run(args.run_path)
    with damage(found.path):
        traces = device_traces(found, folder=args.traces)
    tables = tables_of_traces(traces)
    with damage(found.path):
        ours = ours_by_rank(found, traces)
    console().print(hta_report(tables, ours))
    return 0 if any(table.error is None for table in tables) else 1
