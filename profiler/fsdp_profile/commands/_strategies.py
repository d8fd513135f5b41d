"""`run --as`: the same script once under each strategy, then the comparison."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run
    from fsdp_profile.capture.rewrap.target import Target


class Recorded(NamedTuple):
    """One recording."""

    run_dir: Path
    exit_code: int
    was_interrupted: bool
    """By a signal to the launcher: nothing else is started."""


class Record(Protocol):
    """Records one run."""

    def __call__(self, args: argparse.Namespace, *, strategy: str) -> Recorded:
        """Into `args.output`."""


def record_each(args: argparse.Namespace, world_size: int, record: Record) -> int:
    """Record the script under every strategy asked for and print what differs.

    Returns the exit code of the first that failed; one that ran out of memory is a result, not a failure.

    Raises:
        UsageError: no such strategy, one asked for twice, or not for so many ranks.
    """
    targets = _targets(args.strategies, world_size)
    if len(targets) == 1:
        return record(args, strategy=targets[0].text).exit_code
    folder, rdzv_id = _folder(args, world_size), args.rdzv_id
    done: list[Recorded] = []
    for target in targets:
        args.output = folder / target.folder
        args.rdzv_id = f"{rdzv_id}-{target.folder}" if rdzv_id else rdzv_id
        done.append(record(args, strategy=target.text))
        if done[-1].was_interrupted:
            return done[-1].exit_code
    runs = _with_memory([one.run_dir for one in done])
    out_of_memory = [one for one in done if one.exit_code and _ran_out(one.run_dir)]
    _report(runs, [one.run_dir for one in out_of_memory])
    return next((one.exit_code for one in done if one.exit_code and one not in out_of_memory), 0)


def _targets(texts: list[str], world_size: int) -> list[Target]:
    from fsdp_profile.capture.rewrap.target import parse_target
    from fsdp_profile.core.errors import UsageError

    targets = [parse_target(text) for text in texts]
    for target in targets:
        target.check(world_size)
        if targets.count(target) > 1:
            raise UsageError(f"--as {target.text} is given twice; once is enough")
    return targets


def _folder(args: argparse.Namespace, world_size: int) -> Path:
    from fsdp_profile.core.layout import claim_run_dir, default_run_dir

    return claim_run_dir(args.output if args.output is not None else default_run_dir(args.script, world_size))


def _ran_out(run_dir: Path) -> bool:
    """Whether the run ended because an allocation failed."""
    from fsdp_profile.core.errors import is_out_of_memory
    from fsdp_profile.ingest.manifest import read_manifest

    return any(is_out_of_memory(record.message) for record in read_manifest(run_dir).ranks)


def _with_memory(run_dirs: list[Path]) -> list[Run]:
    """The runs that came to their end and have a peak to compare."""
    from fsdp_profile.analysis.ranks.overview import worst_rank
    from fsdp_profile.commands._opening import read_run

    runs = [read_run(path) for path in run_dirs]
    # Ranks of other nodes have no exit code here.
    return [run for run in runs if not any(r.exit_code for r in run.manifest.ranks) and worst_rank(run) is not None]


def _report(runs: list[Run], out_of_memory: list[Path]) -> None:
    """Print the comparison, and an estimate for each replicated run that did not fit."""
    from fsdp_profile.analysis.compare.peaks import compare
    from fsdp_profile.commands._opening import damage
    from fsdp_profile.render.terminal.compare import comparison_report
    from fsdp_profile.render.terminal.console import console

    page = console()
    page.print()
    for path in out_of_memory:
        _estimate(path, runs)
    if len(runs) > 1:
        whole = next((run for run in runs if run.path.name == "ddp"), None)
        with damage(runs[0].path.parent):
            page.print(comparison_report(compare(runs, baseline=whole)))
        print(f"fsdp-profile: see it with: fsdp-profile dashboard {runs[0].path.parent}", file=sys.stderr)
    elif not out_of_memory:
        print("fsdp-profile: fewer than two runs came to their end; nothing to compare", file=sys.stderr)


def _estimate(path: Path, runs: list[Run]) -> None:
    from fsdp_profile.analysis.compare.replicated import replicated_estimate
    from fsdp_profile.analysis.memory.ledger import peak
    from fsdp_profile.analysis.ranks.overview import worst_rank
    from fsdp_profile.render.terminal.compare import estimate_report
    from fsdp_profile.render.terminal.console import console

    found = next(((run, e) for run in runs if (e := replicated_estimate(run)) is not None), None)
    if path.name != "ddp" or found is None:
        print(f"fsdp-profile: {path.name} ran out of memory: fsdp-profile show {path}", file=sys.stderr)
        return
    run, estimate = found
    rank = worst_rank(run)
    smaller = peak(run, rank=rank) if rank is not None else None
    if smaller is not None:
        console().print(estimate_report(estimate, who="ddp", smaller_bytes=smaller.allocated_bytes))
        console().print()
