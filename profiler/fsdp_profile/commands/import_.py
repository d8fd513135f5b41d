"""Import traces and memory snapshots recorded by others.

FILES are Kineto traces of torch.profiler (.json, .json.gz) and memory snapshots of torch.cuda.memory._dump_snapshot
(.pickle), one of each a rank. They become a run directory, to be opened with `fsdp-profile show` or `dashboard`.
Nothing in a file is executed. A file's rank comes from its content, else its name, else the order given.
"""

import argparse
import sys
from pathlib import Path

_MAX_WARNINGS = 8  # printed; the manifest has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile import`."""
    parser.add_argument("files", metavar="FILES", nargs="+", type=Path, help="traces and snapshots, in order of rank")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the run directory (default: runs/import-<time>)"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: that of its directory)")


def run(args: argparse.Namespace) -> int:
    """Import; 2 when nothing is usable, and then no folder is left behind."""
    import shutil

    from fsdp_profile.errors import InputError
    from fsdp_profile.ingest.import_traces import import_files
    from fsdp_profile.layout import claim_run_dir, default_run_dir

    for path in args.files:
        if not path.is_file():
            what = "is a folder; give the files in it" if path.is_dir() else "no such file"
            raise InputError(f"{path}: {what}")
    wanted = args.output if args.output is not None else default_run_dir("import", len(args.files))
    was_there = wanted.exists()
    run_dir = claim_run_dir(wanted)
    try:
        manifest = import_files(
            args.files,
            run_dir,
            name=args.name or run_dir.resolve().name,
            command=["fsdp-profile", *sys.argv[1:]],
            progress=(lambda path: _say(f"reading {path}")) if sys.stderr.isatty() else None,
        )
    except BaseException:  # whatever it was, nothing half-made stays behind
        for child in run_dir.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        if not was_there:
            run_dir.rmdir()
        raise
    for warning in manifest.warnings[:_MAX_WARNINGS]:
        _say(f"warning: {warning}")
    if len(manifest.warnings) > _MAX_WARNINGS:
        _say(f"{len(manifest.warnings) - _MAX_WARNINGS} more warnings in {run_dir}/manifest.json")
    ranks = [record.rank for record in manifest.ranks]
    _say(f"imported {len(ranks)} of {manifest.world_size} ranks; see it with: fsdp-profile show {run_dir}")
    return 0


def _say(line: str) -> None:
    print(f"fsdp-profile: {line}", file=sys.stderr, flush=True)
