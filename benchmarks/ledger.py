"""The ledger matrix: every way to shard x dtype x variant, recorded on gloo and held against what else is known.

Each cell is a training script recorded by `fsdp-profile run` and run again under PyTorch's own memory tools. A cell
that fails is a row with its reason. `--only PATTERN` (of "fsdp2 bf16 lora") picks cells, `--keep DIR` keeps their
recordings and goes on where it was interrupted.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the scripts beside this one
from benchmarks.scripts.ledger_cells import Cell, all_cells
from benchmarks.scripts.ledger_row import FOOTNOTES, HEADER, Row, failed_row, markdown_line, read_row

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 240


def main() -> int:
    """Print the table; 1 when a cell is not within its bar."""
    args = _arguments().parse_args()
    cells = [c for c in all_cells(quick=args.quick) if any(fnmatch.fnmatch(c.name, p) for p in args.only)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep if args.keep is not None else Path(scratch)
        print(HEADER, file=sys.stderr if args.json else sys.stdout, flush=True)
        rows = []
        for cell in cells:
            rows.append(_row(cell, folder / cell.name.replace(" ", "_"), measure=not args.no_measure))
            print(markdown_line(rows[-1]), file=sys.stderr if args.json else sys.stdout, flush=True)
    if args.json:
        print(json.dumps([row.as_json() for row in rows], indent=1))
    else:
        within = sum(row.is_within_bar for row in rows)
        print(f"\n{within} of {len(rows)} cells within their bar\n\n{FOOTNOTES}")
    return 0 if all(row.is_within_bar for row in rows) else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="cells by name, as in a shell")
    parser.add_argument("--quick", action="store_true", help="one cell of every wrap and every variant")
    parser.add_argument("--no-measure", action="store_true", help="do not run PyTorch's own tools beside it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep recordings there, and use those it has")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    return parser


def _row(cell: Cell, folder: Path, *, measure: bool) -> Row:
    """Record the cell, run the other tools, read all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "recorded").exists():
        shutil.rmtree(folder / "run", ignore_errors=True)
    script = [str(ROOT / "benchmarks" / "scripts" / cell.script), *cell.args]
    recorded = ["fsdp_profile", "run", "-n", str(cell.ranks), "--no-kineto", "-o", str(folder / "run")]
    why = _once(folder / "recorded", [*recorded, *script, "--facts", str(folder / "facts")])
    if why is None and measure:
        plain = ["torch.distributed.run", "--standalone", f"--nproc-per-node={cell.ranks}"]
        tools = ["--measure", *cell.tools]
        _once(folder / "measured", [*plain, *script, "--facts", str(folder / "facts"), *tools], may_fail=True)
    return read_row(cell, folder) if why is None else failed_row(cell, why)


def _once(mark: Path, module: list[str], *, may_fail: bool = False) -> str | None:
    """Run a module unless it was run to its end before; why it failed, None if it did not."""
    if mark.exists():
        return None
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *module], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT_S} s"
    mark.with_suffix(".log").write_text(done.stdout + done.stderr)
    if done.returncode and not may_fail:
        errors = re.findall(r"^\[rank\d+\]: (\w*Error: .+)$", done.stderr, re.M)
        return (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0].strip()[:160]
    mark.write_text(time.strftime("%Y-%m-%d %H:%M:%S\n"))
    return None


if __name__ == "__main__":
    sys.exit(main())
