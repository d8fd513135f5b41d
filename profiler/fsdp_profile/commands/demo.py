"""Record the same small model under DDP and FSDP2 on this machine, and compare.

Needs no GPU and no data: a small GPT on 2 ranks (CPU and gloo where there is
no device). Takes under a minute.
"""

import argparse
from pathlib import Path

# Big enough that model states, not activations, make the peak; small enough for a few seconds on two cores.
_MODEL = ("--dim", "256", "--layers", "6", "--batch", "1", "--seq-len", "32", "--steps", "4")
_SCRIPTS = (("ddp", "train_ddp.py"), ("fsdp2", "train_fsdp2.py"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile demo`."""
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to record (default: runs/demo-<time>)")
    parser.add_argument("-n", "--nproc-per-node", type=int, default=2, metavar="N", help="ranks (default: 2)")


def run(args: argparse.Namespace) -> int:
    """Record both, print the comparison, offer the dashboard on a terminal."""
    import sys
    import time

    from fsdp_profile.commands import main
    from fsdp_profile.core.layout import claim_run_dir, packaged

    name = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = claim_run_dir(args.output if args.output is not None else Path("runs") / name)
    examples = packaged("examples")
    for strategy, script in _SCRIPTS:
        nproc = ["--nproc-per-node", str(args.nproc_per_node)]
        code = main(["run", *nproc, "-o", str(folder / strategy), str(examples / script), *_MODEL])
        if code:
            return code
    print()
    code = main(["compare", str(folder / "ddp"), str(folder / "fsdp2")])
    print(f"\nMore: fsdp-profile show {folder / 'fsdp2'}   or   fsdp-profile dashboard {folder}")
    if code == 0 and sys.stdin.isatty() and sys.stdout.isatty() and _wants_dashboard():
        return main(["dashboard", str(folder)])
    return code


def _wants_dashboard() -> bool:
    try:
        return input("Open the dashboard now? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
