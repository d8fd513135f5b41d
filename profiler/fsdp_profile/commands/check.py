"""Hold a run against limits, or against a baseline: exit code 1 when it uses more.

What moved is named: the category, the unit, the communicator. Bytes of a
baseline may vary by 1 % (at least 64 KiB), or by as much as the baseline itself
does; give --baseline several times to tell how much that is. Time is compared
with --max-slowdown only. A limit on what was not recorded fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.humanize import bytes_of

if TYPE_CHECKING:
    from fsdp_profile.analysis.check.limits import CheckReport, Limits

EXIT_BREACH = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile check`."""
    parser.add_argument("run_path", metavar="RUN", type=Path, help="a run directory or a bundle")
    parser.add_argument("--max-peak", metavar="SIZE", help="most bytes allocated, such as 40GiB")
    parser.add_argument("--max-reserved", metavar="SIZE", help="most bytes the caching allocator holds")
    parser.add_argument("--max-exposed", metavar="RATIO", help="collectives with no compute beside them, such as 20%%")
    parser.add_argument("--max-unknown", metavar="RATIO", help="share of the peak that is UNKNOWN, such as 1%%")
    parser.add_argument("--max-growth-per-step", metavar="SIZE", help="growth of live bytes from step to step")
    parser.add_argument(
        "--baseline", metavar="RUN", type=Path, action="append", default=[],
        help="the run or bundle to compare with; repeat the option for several recordings of the same script",
    )  # fmt: skip
    parser.add_argument("--max-slowdown", metavar="RATIO", help="of the median step against the baseline, such as 20%%")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write a JUnit report too")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write Markdown for GitHub too; - prints it")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")


def run(args: argparse.Namespace) -> int:
    """Check; 1 on a breach."""
    import sys

    from fsdp_profile.analysis.check.limits import check
    from fsdp_profile.analysis.compare.peaks import was_cut_off

    limits = _limits(args)
    found, baselines = open_run(args.run_path), [open_run(path) for path in args.baseline]
    with damage(found.path):
        report = check(found, limits=limits, baselines=baselines)
    _write(report, args)
    for run in (found, *baselines):
        if was_cut_off(run):
            print(f"fsdp-profile: {run.path} is not complete: what is checked is what was seen", file=sys.stderr)
    if args.json:
        import json

        print(json.dumps(document(report), indent=2, allow_nan=False))
    elif args.markdown == Path("-"):
        from fsdp_profile.render.markdown.check import check_markdown

        print(check_markdown(report), end="")
    else:
        from fsdp_profile.render.terminal.check import check_report
        from fsdp_profile.render.terminal.console import console

        console().print(check_report(report))
    return EXIT_BREACH if report.failed else 0


def document(report: CheckReport) -> dict[str, Any]:
    """The document of `check --json`. Keys are stable."""
    from dataclasses import asdict

    from fsdp_profile.core.schema import SCHEMA_VERSION

    return {
        "schema": SCHEMA_VERSION,
        "run": report.run,
        "baselines": list(report.baselines),
        "passed": not report.failed,
        "checks": [{**asdict(check), "verdict": str(check.verdict)} for check in report.checks],
        "differences": list(report.differences),
    }


def _limits(args: argparse.Namespace) -> Limits:
    from fsdp_profile.analysis.check.limits import Limits

    limits = Limits(
        peak_bytes=_given(args.max_peak, "--max-peak", bytes_of),
        reserved_bytes=_given(args.max_reserved, "--max-reserved", bytes_of),
        exposed_ratio=_given(args.max_exposed, "--max-exposed", _share_of),
        unknown_ratio=_given(args.max_unknown, "--max-unknown", _share_of),
        growth_bytes_per_step=_given(args.max_growth_per_step, "--max-growth-per-step", bytes_of),
        slowdown_ratio=_given(args.max_slowdown, "--max-slowdown", _ratio_of),
    )
    if limits == Limits() and not args.baseline:
        raise UsageError("nothing to check: give a limit such as --max-peak 40GiB, or --baseline RUN")
    if limits.slowdown_ratio is not None and not args.baseline:
        raise UsageError("--max-slowdown needs something to be slower than: give --baseline RUN")
    if args.json and args.markdown == Path("-"):
        raise UsageError("--json and --markdown - both ask for standard output; give --markdown a file")
    return limits


def _given(text: str | None, option: str, value_of: Callable[[str], Any]) -> Any:
    if text is None:
        return None
    try:
        return value_of(text)
    except ValueError as e:
        raise UsageError(f"{option}: {e}") from e


def _ratio_of(text: str) -> float:
    """A share as people write it.

    >>> _ratio_of("20%"), _ratio_of("0.2")
    (0.2, 0.2)
    """
    stripped = text.strip()
    try:
        ratio = float(stripped.removesuffix("%")) / (100 if stripped.endswith("%") else 1)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio < 1e6:
        raise ValueError(f"'{text}' is not a share; write it as 20% or 0.2")
    return ratio


def _share_of(text: str) -> float:
    """A ratio of a whole: a limit above 100 % could never be broken."""
    ratio = _ratio_of(text)
    if ratio > 1:
        raise ValueError(f"'{text}' is more than the whole; write it as 20% or 0.2")
    return ratio


def _write(report: CheckReport, args: argparse.Namespace) -> None:
    from fsdp_profile.export.files import write_file
    from fsdp_profile.render.junit import check_junit
    from fsdp_profile.render.markdown.check import check_markdown

    if args.junit is not None:
        write_file(args.junit, [check_junit(report).encode()], overwrite=True)
    if args.markdown is not None and args.markdown != Path("-"):
        write_file(args.markdown, [check_markdown(report).encode()], overwrite=True)
