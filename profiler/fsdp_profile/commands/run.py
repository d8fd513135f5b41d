"""Record an unmodified distributed training script.

Starts the script on N local ranks through torchrun's own elastic agent and
records allocator events, FSDP and DDP units, collectives and device samples
beside it. The script's output and exit code stay its own. What was recorded is
a folder: open it with `fsdp-profile show`, `compare` or `dashboard`.

With `--as` the same script is trained under another strategy than its own, its
wrappers exchanged as it calls them; given several times, it is recorded once
under each, the losses are checked against each other, and the runs compared.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from fsdp_profile.commands._strategies import Recorded, record_each
from fsdp_profile.core.errors import UsageError

_TORCHRUN_TEXT = ("--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--master-addr")
_TORCHRUN_NUMBERS = ("--node-rank", "--master-port", "--max-restarts")
_MAX_WARNINGS = 5  # printed after a run; the manifest has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile run`."""
    parser.add_argument(
        "-n", "--nproc-per-node", metavar="N",
        help="ranks on this machine: a number, gpu (the default: one for each device; without any: 2) or cpu",
    )  # fmt: skip
    parser.add_argument(
        "--own-launcher", action="store_true",
        help="the script starts its ranks itself: run it once (seen without this for mp.spawn, torchrun, accelerate)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="the run directory (default: runs/<name>)")
    parser.add_argument(
        "--steps", default="0:8", metavar="A:B",
        help="steps A up to, not including, B whose Kineto traces are kept; recording ends before step B",
    )  # fmt: skip
    parser.add_argument("--no-kineto", action="store_true", help="do not keep Kineto traces")
    parser.add_argument("--no-allocator", action="store_true", help="do not record allocator events")
    parser.add_argument("--stacks", action="store_true", help="record the source line of every allocation (slower)")
    parser.add_argument(
        "--buffer", default="1GiB", metavar="SIZE",
        help="CPU: growth of a rank's process after which what was recorded is written inside a step (default: 1GiB)",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="strategies", action="append", metavar="STRATEGY",
        help="train under ddp, zero1, zero2, fsdp, hsdp:K (shards over K ranks) or as-is; may be given several times",
    )  # fmt: skip
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module, as in python -m")
    for option in _TORCHRUN_TEXT:
        parser.add_argument(option, metavar="X", help="as in torchrun")
    for option in _TORCHRUN_NUMBERS:
        parser.add_argument(option, metavar="N", type=int, help="as in torchrun")
    parser.add_argument("script", help="the training script (or module with -m), or a launcher's command: torchrun ...")
    rest = parser.add_argument("script_args", nargs=argparse.REMAINDER, help="its arguments")
    rest.required = False  # may be empty, so argparse need not ask for it by name


def run(args: argparse.Namespace) -> int:
    """Record; the exit code is the script's own."""
    from fsdp_profile.commands._launchers import as_rank, command_of, is_rank

    _check_script(args)
    if is_rank(args):
        return as_rank(args, _options(args, _only_strategy(args)))
    command = command_of(args)
    if args.strategies:
        if command is not None:
            raise UsageError(f"--as starts the ranks itself, but {command[1]} starts them here; give -n if it does not")
        return record_each(args, _world_size(args), _record)
    return (_record(args) if command is None else _run_once(args, *command)).exit_code


def _only_strategy(args: argparse.Namespace) -> str:
    """Inside somebody else's launcher: it starts the ranks once."""
    if len(args.strategies or ()) > 1:
        raise UsageError("--as can be given once only inside a launcher, which starts the ranks once")
    return str(args.strategies[0]) if args.strategies else ""


def _record(args: argparse.Namespace, *, strategy: str = "") -> Recorded:
    """The usual way: as many processes as ranks, through torchrun's agent; as the script wraps, or under a strategy."""
    from fsdp_profile.capture.launch.torchrun import launch, prepare
    from fsdp_profile.core.layout import MANIFEST, ranks_in

    options = _options(args, strategy)
    nproc = _nproc(args.nproc_per_node or "gpu")
    world_size = _world_size(args)
    job = prepare(
        script=[*(["-m"] if args.module else []), args.script, *args.script_args],
        torchrun_args=[f"--nproc-per-node={nproc}", *_torchrun_args(args)],
    )
    if _nodes(args.nnodes) > 1:
        return _record_node(args, job, options, world_size)
    run_dir = _claim(args, world_size)
    started = _started(args, run_dir, world_size, strategy)
    how = f" as {strategy}" if strategy else ""
    _say(f"recording {args.script}{how} on {nproc} rank{'s' if nproc > 1 else ''} into {run_dir}")
    try:
        outcome = launch(job, run_dir=run_dir, options=options, ranks=lambda: ranks_in(run_dir))
    except UsageError:  # torchrun could not start: there is no run
        (run_dir / MANIFEST).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            run_dir.rmdir()
        raise
    return _finish(run_dir, started, outcome, world_size=world_size)


def _record_node(args: argparse.Namespace, job: Any, options: Any, world_size: int) -> Recorded:
    """The same on one of several nodes: they may share the folder, and whoever reads it last finishes the manifest."""
    from fsdp_profile.capture.launch.torchrun import launch, undisturbed
    from fsdp_profile.capture.process.join import join_run, key_of_nodes
    from fsdp_profile.core.layout import ranks_in
    from fsdp_profile.ingest.finalize import finish
    from fsdp_profile.ingest.manifest import read_manifest

    told_alike = (args.rdzv_id, args.rdzv_endpoint, args.master_addr, str(args.master_port or ""))
    run_dir = join_run(
        args.output,
        world_size=world_size,
        script=args.script,
        script_args=list(args.script_args),
        command=["fsdp-profile", *sys.argv[1:]],
        key=key_of_nodes(*told_alike),
    )
    _say(f"recording {args.script} on this node of {_nodes(args.nnodes)} into {run_dir}")
    outcome = launch(job, run_dir=run_dir, options=options, ranks=lambda: ranks_in(run_dir))
    with undisturbed():
        manifest = finish(run_dir, read_manifest(run_dir))
        _summarise(run_dir)
    _tell(run_dir, manifest, outcome)
    return Recorded(run_dir, outcome.exit_code, outcome.interrupted_by is not None)


def _run_once(args: argparse.Namespace, command: list[str], why: str) -> Recorded:
    """One process, which starts the ranks itself."""
    from dataclasses import replace

    from fsdp_profile.capture.launch.own_launcher import launch_tree
    from fsdp_profile.capture.process.failure_flush import first_to_fail
    from fsdp_profile.core.layout import ranks_in

    options = _options(args, "")
    run_dir = _claim(args, None)
    started = _started(args, run_dir, 0, "")
    _say(f"recording {args.script} into {run_dir}; it is run once, for {why} starts its ranks")
    outcome = launch_tree(command, run_dir=run_dir, options=options)
    if outcome.exit_code == 0:
        outcome = replace(outcome, rank_exit_codes=dict.fromkeys(ranks_in(run_dir), 0))
    else:
        outcome = replace(outcome, first_failed_rank=first_to_fail(run_dir))
    return _finish(run_dir, started, outcome, world_size=None)


def _finish(run_dir: Path, started: Any, outcome: Any, *, world_size: int | None) -> Recorded:
    """Tables, manifest, and how it went; the script's exit code counts, whatever became of its recording."""
    from fsdp_profile.capture.launch.torchrun import undisturbed
    from fsdp_profile.core.errors import FsdpProfileError
    from fsdp_profile.ingest.finalize import finalize_attempts

    try:
        with undisturbed():
            manifest = finalize_attempts(run_dir, started, exit_codes=outcome.rank_exit_codes, world_size=world_size)
            _summarise(run_dir)
    except FsdpProfileError as e:
        _say(f"{e}; what was recorded is kept in {run_dir}")
        return Recorded(run_dir, outcome.exit_code, outcome.interrupted_by is not None)
    _tell(run_dir, manifest, outcome)
    return Recorded(run_dir, outcome.exit_code, outcome.interrupted_by is not None)


def _summarise(run_dir: Path) -> None:
    """Store the summary of each rank that recorded on this machine, so that a thousand ranks are listed in a second."""
    from fsdp_profile.analysis.ranks.overview import store_summaries
    from fsdp_profile.analysis.run import load_run

    with contextlib.suppress(Exception):  # it only saves work: whoever reads the run is told what is wrong with it
        store_summaries(load_run(run_dir))


def _tell(run_dir: Path, manifest: Any, outcome: Any) -> None:
    """How it ended, what was missed, what it cost, where it is."""
    from fsdp_profile.core.humanize import bytes_text, slowdown_text

    if outcome.interrupted_by is not None:
        _say(f"interrupted by signal {outcome.interrupted_by}; what was recorded is kept")
    elif outcome.exit_code:
        _say(_failure_line(manifest, outcome.first_failed_rank, outcome.exit_code))
    for replaced in manifest.extra.get("rewrapped", []):
        _say(replaced)
    for warning in manifest.warnings[:_MAX_WARNINGS]:
        _say(f"warning: {warning}")
    if len(manifest.warnings) > _MAX_WARNINGS:
        _say(f"{len(manifest.warnings) - _MAX_WARNINGS} more warnings in {run_dir}/manifest.json")
    receipt = manifest.receipt
    num_ranks = sum(record.pid > 0 for record in manifest.ranks)
    _say(
        f"recorded {receipt.allocator_events:,} allocator events and {receipt.hook_events:,} hook events of "
        f"{num_ranks} rank{'s' if num_ranks != 1 else ''} ({bytes_text(receipt.raw_bytes)}); "
        f"{receipt.flush_ns / 1e9:.2f} s between steps, {receipt.convert_ns / 1e9:.2f} s afterwards"
    )
    if receipt.bare_step_ns is not None:
        slowdown = slowdown_text(receipt.recorded_step_ns, receipt.bare_step_ns, receipt.num_bare_steps)
        _say(f"a recorded step took {slowdown}")
    _say(f"see it with: fsdp-profile show {run_dir}")


def _say(line: str) -> None:
    try:
        print(f"fsdp-profile: {line}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads us any more: the script's exit code counts all the same
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _check_script(args: argparse.Namespace) -> None:
    from fsdp_profile.commands._launchers import is_command
    from fsdp_profile.core.errors import InputError

    if not args.module and not Path(args.script).is_file() and not is_command(args.script):
        what = "is a folder" if Path(args.script).is_dir() else "no such file"
        raise InputError(f"{args.script}: {what}; give the training script's path")


def _nproc(text: str) -> int:

    if text.isdecimal() and int(text) >= 1:
        return int(text)
    if text == "cpu":
        import os

        return os.cpu_count() or 1
    if text in ("gpu", "auto"):
        return _device_count() or 2
    raise UsageError(f"--nproc-per-node {text}: not a number of ranks; give 1 or more, gpu or cpu")


def _device_count() -> int:
    from fsdp_profile.core.errors import MissingExtraError

    try:
        import torch
    except ImportError as e:
        raise MissingExtraError("recording a run", "capture") from e
    return int(torch.cuda.device_count())


def _nodes(text: str | None) -> int:

    highest = (text or "1").split(":")[-1]
    if not highest.isdecimal() or int(highest) < 1:
        raise UsageError(f"--nnodes {text}: give a number of nodes, or MIN:MAX")
    return int(highest)


def _world_size(args: argparse.Namespace) -> int:
    return _nproc(args.nproc_per_node or "gpu") * _nodes(args.nnodes)


def _options(args: argparse.Namespace, strategy: str) -> Any:
    from fsdp_profile.capture.options import Options
    from fsdp_profile.core.humanize import bytes_of

    first, _, last = args.steps.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise UsageError(f"--steps {args.steps}: give A:B with A less than B, such as 0:8")
    try:
        buffer = bytes_of(args.buffer)
    except ValueError as e:
        raise UsageError(f"--buffer: {e}") from e
    return Options(
        first_step=int(first),
        last_step=int(last),
        kineto=not args.no_kineto,
        allocator=not args.no_allocator,
        stacks=args.stacks,
        buffer_bytes=buffer,
        strategy=strategy,
        losses=bool(strategy),
    )


def _torchrun_args(args: argparse.Namespace) -> list[str]:
    names = [option.removeprefix("--").replace("-", "_") for option in (*_TORCHRUN_TEXT, *_TORCHRUN_NUMBERS)]
    given = ((name, getattr(args, name)) for name in names)
    return [f"--{name.replace('_', '-')}={value}" for name, value in given if value is not None]


def _claim(args: argparse.Namespace, world_size: int | None) -> Path:
    from fsdp_profile.core.layout import claim_run_dir, default_run_dir

    return claim_run_dir(args.output if args.output is not None else default_run_dir(args.script, world_size))


def _started(args: argparse.Namespace, run_dir: Path, world_size: int, strategy: str) -> Any:
    """The manifest of a run that has begun; as it is written, a reader finishes it should we never come to it."""
    from dataclasses import replace
    from datetime import datetime

    from fsdp_profile.core.layout import UNFINISHED
    from fsdp_profile.core.manifest import Manifest
    from fsdp_profile.ingest.manifest import write_manifest

    started = Manifest(
        name=run_dir.resolve().name,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=["fsdp-profile", *sys.argv[1:]],
        script=args.script,
        script_args=list(args.script_args),
        world_size=world_size,
        extra={"as": strategy} if strategy else {},
    )
    write_manifest(run_dir, replace(started, extra={**started.extra, UNFINISHED: "the launcher is running"}))
    return started


def _failure_line(manifest: Any, rank: int | None, exit_code: int) -> str:
    record = next((r for r in manifest.ranks if r.rank == rank), None)
    why = f" ({record.message})" if record is not None and record.message else ""
    if record is not None and record.exit_code is None:  # not our child: the code is the script's
        return f"the script ended with exit code {exit_code}, rank {rank} failed first{why}; what was recorded is kept"
    what = f"rank {rank}" if rank is not None else "the script"
    return f"{what} ended with exit code {exit_code}{why}; what was recorded is kept"
