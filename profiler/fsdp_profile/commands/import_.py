"""Import traces and memory snapshots recorded by others.

FILES are Kineto traces of torch.profiler (.json, .json.gz) and memory snapshots
of torch.cuda.memory._dump_snapshot (.pickle), one of each a rank; a folder
stands for such files in it. They become a run directory, to be opened with
`fsdp-profile show` or `dashboard`. Nothing in a file is executed. The rank of a
file is that of --rank, else comes from its content, else its name, else the
order given.
"""

import argparse
import sys
from pathlib import Path

_MAX_WARNINGS = 8  # printed; the manifest has all
_SUFFIXES = (".json", ".json.gz", ".pickle", ".pickle.gz", ".pkl", ".pkl.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile import`."""
    parser.add_argument("files", metavar="FILES", nargs="+", type=Path, help="traces and snapshots, or folders of them")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the run directory (default: runs/import-<time>)"
    )
    parser.add_argument(
        "--rank", type=int, metavar="R", help="the rank of the one trace, and of the one snapshot, whatever they say"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: that of its directory)")


def run(args: argparse.Namespace) -> int:
    """Import; 2 when nothing is usable, and then no folder is left behind."""
    import shutil

    from fsdp_profile.core.errors import UsageError
    from fsdp_profile.core.layout import claim_run_dir, default_run_dir
    from fsdp_profile.ingest.imported.run import import_files

    if args.rank is not None and args.rank < 0:
        raise UsageError(f"--rank {args.rank}: ranks are counted from 0")
    from fsdp_profile.analysis.ranks.overview import store_summaries
    from fsdp_profile.analysis.run import load_run

    files = _files(args.files)
    wanted = args.output if args.output is not None else default_run_dir("import", len(files))
    was_there = wanted.exists()
    run_dir = claim_run_dir(wanted)
    try:
        manifest = import_files(
            files,
            run_dir,
            rank=args.rank,
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
    store_summaries(load_run(run_dir))
    ranks = [record.rank for record in manifest.ranks]
    _say(f"imported {len(ranks)} of {manifest.world_size} ranks; see it with: fsdp-profile show {run_dir}")
    return 0


def _files(given: list[Path]) -> list[Path]:
    """The files, and those of the folders in order of name.

    Raises:
        InputError: no such file, or nothing to import in a folder.
    """
    from fsdp_profile.core.errors import InputError

    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name.lower().endswith(_SUFFIXES))
            if not inside:
                raise InputError(f"{path}: no {', '.join(_SUFFIXES)} in this folder; give the files themselves")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file")
    return found


def _say(line: str) -> None:
    print(f"fsdp-profile: {line}", file=sys.stderr, flush=True)
