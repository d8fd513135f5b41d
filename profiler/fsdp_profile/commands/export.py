"""Write a run as one file to share: a bundle, an HTML report, a trace, a table, a picture.

The ending of OUT says which: .fsdpz (a bundle, which every verb opens),
.html (one page that needs no network; with a second RUN it compares),
.json or .json.gz (a trace for Perfetto and chrome://tracing),
.csv, .parquet (one table: --table), .md (the report, or one table),
.svg (one chart: --chart). With --redact the file identifies no people,
machines or projects; --preview lists what that would remove and writes
nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.core.errors import UsageError
from fsdp_profile.export.formats import CHARTS, FORMATS, Options, format_of

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run
    from fsdp_profile.export.redact.redaction import Removal

ENDINGS = ", ".join(found.ending for found in FORMATS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile export`."""
    parser.add_argument(
        "run_paths", metavar="RUN", nargs="+", type=Path, help="a run directory or bundle; .html takes two to compare"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help=f"the file: {ENDINGS}")
    parser.add_argument("--table", metavar="NAME", help="of .csv, .parquet, .md: which table (default: timeline)")
    parser.add_argument("--chart", choices=CHARTS, help="of .svg: memory (default), peak, ranks or units")
    parser.add_argument(
        "--rank", type=int, metavar="R", help="of tables (default: all) and charts (default: highest peak)"
    )
    parser.add_argument("--redact", action="store_true", help="take out hosts, paths, arguments, source lines, ...")
    parser.add_argument(
        "--hide-modules", nargs="?", const="", metavar="KEY",
        help="redact names of modules too; with the same KEY the same names stand for them in another export",
    )  # fmt: skip
    parser.add_argument("--preview", action="store_true", help="list what --redact would remove, and write nothing")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(args: argparse.Namespace) -> int:
    """Export."""
    _check(args)
    runs = [open_run(path) for path in args.run_paths]
    if args.redact or args.preview or args.hide_modules is not None:
        runs, removals = _redacted(runs, args.hide_modules)
        if args.preview:
            _print_removals(removals, written=False)
            return 0
    with damage(runs[0].path):
        size = _write(runs, args)
    from fsdp_profile.core.humanize import bytes_text

    print(f"{args.output}: {bytes_text(size)}")
    if args.redact or args.hide_modules is not None:
        _print_removals(removals, written=True)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.output is None:
        if not args.preview:
            raise UsageError("say where to: -o OUT; see fsdp-profile export --help")
        return
    chosen = format_of(args.output.name)
    if chosen is None:
        raise UsageError(f"{args.output}: unknown ending; give one of {ENDINGS}")
    for option in ("table", "chart", "rank"):
        if getattr(args, option) is not None and option not in chosen.options:
            endings = ", ".join(found.ending for found in FORMATS if option in found.options)
            raise UsageError(f"{args.output}: --{option} is of {endings}; leave it out or choose such an ending")
    if args.rank is not None and args.table is None and args.output.suffix == ".md":
        raise UsageError(f"{args.output}: --rank is of one table; name it with --table")
    if len(args.run_paths) > 1 and chosen.max_runs == 1:
        several = ", ".join(found.ending for found in FORMATS if found.max_runs > 1)
        raise UsageError(f"{args.output}: takes one run; only {several} compares two")
    if len(args.run_paths) > 2:
        raise UsageError(f"{len(args.run_paths)} runs: a report compares two; for more use fsdp-profile compare")


def _write(runs: Sequence[Run], args: argparse.Namespace) -> int:
    from fsdp_profile.export.files import write_file

    chosen = format_of(args.output.name)
    assert chosen is not None  # _check refused it
    options = Options(table=args.table, chart=args.chart or CHARTS[0], rank=args.rank)
    return write_file(args.output, [chosen.write(runs, options)], overwrite=args.force)


def _redacted(runs: Sequence[Run], key: str | None) -> tuple[list[Run], list[Removal]]:
    from fsdp_profile.export.redact.redaction import Redaction, redacted

    how = Redaction(hide_modules=key is not None, key=key or "")
    found, removals = [], []
    for run in runs:
        with damage(run.path):
            clean, removed = redacted(run, how)
        found.append(clean)
        removals += removed
    return found, removals


def _print_removals(removals: Sequence[Removal], *, written: bool) -> None:
    from fsdp_profile.render.terminal.console import console
    from fsdp_profile.render.terminal.redaction import redaction_report

    console().print(redaction_report(removals, written=written))
    sys.stdout.flush()
