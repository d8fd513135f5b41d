"""The planner against measurements: simulated and calibrated peaks of every way to shard, on 4 gloo ranks.

Each cell of the ledger matrix is recorded on 2 and on 4 ranks, simulated, and predicted from its 2-rank recording; the
FSDP2 cell is also predicted as the other strategies. `--large` simulates 13 billion parameters instead and prints
time, host memory and states beside the closed forms. `--only PATTERN` picks cells, `--keep DIR` keeps recordings.
"""

import argparse
import fnmatch
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scripts.ledger_cells import DTYPES, WRAPS
from benchmarks.scripts.ledger_row import _without_scratch

from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.plan.calibrate import Target, calibrated, predict
from fsdp_profile.plan.formulas.strategies import Layout, World
from fsdp_profile.plan.measured import layout_of, world_of
from fsdp_profile.plan.simulate.simulation import Simulation, simulate, simulated_row

ROOT = Path(__file__).resolve().parents[1]
CELL = ROOT / "benchmarks" / "scripts" / "ledger_cell.py"
RANKS, FEW = 4, 2
NEED_FOUR = ("hybrid", "hsdp", "fsdp2-int")
BETWEEN = {Layout.DDP: "ddp", Layout.FSDP: "fsdp2", Layout.FSDP_NO_RESHARD: "fsdp2-no-reshard", Layout.HSDP: "hsdp"}
SIMULATED_BAR, CALIBRATED_BAR = 0.02, 0.05
LARGE = ("--dim", "5120", "--layers", "40", "--heads", "40", "--vocab", "40960", "--seq-len", "2048", "--batch", "1")
HEADER = """\
| cell | measured | without scratch | simulated | error | from 2 ranks: replay | simulated |
|---|---:|---:|---:|---:|---:|---:|"""


def main() -> int:
    """Print the tables; 1 when an error is above its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="cells by name, as in a shell")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep recordings there, and use those it has")
    parser.add_argument("--variants", nargs="+", default=["plain"], metavar="V", help="of the cells (default: plain)")
    parser.add_argument("--large", action="store_true", help="simulate 13 billion parameters")
    args = parser.parse_args()
    if args.large:
        return _large()
    names = [f"{wrap} {dtype} {variant}" for wrap in WRAPS for dtype in DTYPES for variant in args.variants]
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        print(HEADER, flush=True)
        within = [_guarded(name, folder) for name in names if any(fnmatch.fnmatch(name, p) for p in args.only)]
        if any(fnmatch.fnmatch("between", p) for p in args.only):
            within += _between(folder)
    print(f"\n{sum(within)} of {len(within)} within {SIMULATED_BAR:.0%} simulated, {CALIBRATED_BAR:.0%} calibrated")
    return 0 if all(within) else 1


def _words(name: str) -> list[str]:
    wrap, dtype, variant = name.split()
    return [str(CELL), "--wrap", wrap, "--dtype", dtype, "--variant", variant]


def _recorded(name: str, ranks: int, folder: Path) -> Run:
    path = folder / f"{name.replace(' ', '_')}-{ranks}"
    if not (path / "manifest.json").exists() or not load_run(path).manifest.complete:
        shutil.rmtree(path, ignore_errors=True)
        words = ["-m", "fsdp_profile", "run", "-n", str(ranks), "--no-kineto", "-o", str(path), *_words(name)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=True, timeout=300)
    return load_run(path)


def _simulated(name: str, ranks: int, layout: Layout | None = None) -> Simulation:
    return simulate(_words(name), world=World(size=ranks), layout=layout)


def _guarded(name: str, folder: Path) -> bool:
    """A cell that cannot be recorded or simulated is a row with its reason."""
    try:
        return _cell(name, folder)
    except (subprocess.SubprocessError, FsdpProfileError) as e:
        print(f"| {name} **!** | failed: {str(e)[-160:]} | | | | | |", flush=True)
        return False


def _cell(name: str, folder: Path) -> bool:
    """One line of the table."""
    run = _recorded(name, RANKS, folder)
    known = peak(run, rank=0)
    assert known is not None
    clean, _ = _without_scratch(run, 0)
    here = _simulated(name, RANKS)
    error = here.peak.allocated_bytes / clean - 1
    replayed: float | None = None
    corrected: float | None = None
    if not name.startswith(NEED_FOUR) and "hybrid" not in name:
        few = _recorded(name, FEW, folder)
        (row,) = predict(few, [Target(layout=layout_of(run), world=world_of(run))])
        replayed = _error(row, run)
        corrected = _error(calibrated(here, source=_simulated(name, FEW), run=few), run)
    is_within = abs(error) <= SIMULATED_BAR and min(abs(replayed or 0), abs(corrected or 0)) <= CALIBRATED_BAR
    cells = (
        name + ("" if is_within else " **!**"), f"{known.allocated_bytes:,}", f"{clean:,}",
        f"{here.peak.allocated_bytes:,}", _text(error), _text(replayed), _text(corrected),
    )  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)
    return is_within


def _between(folder: Path) -> list[bool]:
    """From FSDP2 on 2 ranks to the other strategies on 4."""
    print("\n| from fsdp2 on 2 ranks to | measured | replay | simulated |\n|---|---:|---:|---:|", flush=True)
    source, few = _simulated("fsdp2 fp32 plain", FEW), _recorded("fsdp2 fp32 plain", FEW, folder)
    within = []
    for layout, wrap in BETWEEN.items():
        run = _recorded(f"{wrap} fp32 plain", RANKS, folder)
        (row,) = predict(few, [Target(layout=layout, world=World(size=RANKS))])
        better = calibrated(_simulated("fsdp2 fp32 plain", RANKS, layout), source=source, run=few)
        errors = (_error(row, run), _error(better, run))
        within.append(abs(errors[1]) <= CALIBRATED_BAR)
        known = peak(run, rank=0)
        assert known is not None
        print(f"| {layout} | {known.allocated_bytes:,} | {_text(errors[0])} | {_text(errors[1])} |", flush=True)
    return within


def _error(row: Any, run: Run) -> float:
    """Against the peak of rank 0."""
    known = peak(run, rank=0)
    assert known is not None
    return float(row.peak_bytes / known.allocated_bytes - 1)


def _text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:+.2%}".replace("%", " %")


def _large() -> int:
    """13.0 billion parameters as each layout on 8 ranks, fp32: wall time, memory, states against 4 P + 4 P + 8 P."""
    print("| strategy | wall s | CPU s | host MiB | states GB | closed form | peak GB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    good = True
    for layout in BETWEEN:
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        world = World(size=8)
        found = simulate([str(ROOT / "examples" / "train_fsdp2.py"), *LARGE], world=world, layout=layout)
        wall, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        row = simulated_row(found)
        numel = found.run.manifest.model.numel
        form = 16 * numel // world.shards(layout)
        counters = row.states_bytes - form  # AdamW's 4-byte step counters
        good &= wall < 180 and used.ru_maxrss < 8 << 20 and 0 <= counters <= 4 * found.run.manifest.model.num_params
        print(
            f"| {layout} | {wall:.0f} | {cpu:.0f} | {used.ru_maxrss >> 10} | {row.states_bytes / 1e9:.3f} "
            f"| +{counters} B | {(row.peak_bytes or 0) / 1e9:.2f} |", flush=True,
        )  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
