"""Run Holistic Trace Analysis over a run's Kineto traces, for people who know it.

Temporal breakdown, overlap, idle time and kernel breakdown, from HTA itself in
a process of its own, with our overlap beside them. Needs the extra [hta] and a
run with device activity; where HTA fails on a trace, its own words are shown.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile hta`."""
    parser.add_argument("run_path", metavar="RUN", type=Path, help="a run directory")


def run(args: argparse.Namespace) -> int:
    """Print HTA's tables; 1 if HTA gave none at all."""
    from fsdp_profile.analysis.collectives import collective_summary
    from fsdp_profile.analysis.hta import hta_tables
    from fsdp_profile.commands._opening import damage, open_run
    from fsdp_profile.report.hta import hta_report
    from fsdp_profile.report.terminal import console

    found = open_run(args.run_path)
    tables = hta_tables(found)
    with damage(found.path):
        ours = {rank: collective_summary(found, rank=rank) for rank in found.ranks}
    console().print(hta_report(tables, ours))
    return 0 if any(table.error is None for table in tables) else 1
