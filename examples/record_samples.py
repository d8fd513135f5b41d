"""Record sample_runs/ again: the example scripts on gloo, small enough to be kept in the repository.

The raw logs and Kineto traces are dropped afterwards; each run's manifest keeps its exact command.
"""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parent / "sample_runs"
MODEL = ("--dim", "128", "--layers", "4", "--batch", "2", "--seq-len", "32", "--steps", "4")
RUNS = {
    "gpt-ddp-2ranks": ("train_ddp.py", 2, ()),
    "gpt-fsdp1-2ranks": ("train_fsdp1.py", 2, ()),
    "gpt-fsdp2-2ranks": ("train_fsdp2.py", 2, ()),
    "gpt-fsdp2-no-reshard-2ranks": ("train_fsdp2.py", 2, ("--no-reshard",)),
    "gpt-ddp-4ranks": ("train_ddp.py", 4, ()),
    "gpt-hsdp-4ranks": ("train_hsdp.py", 4, ()),
}


def main() -> None:
    """Record each run into a new folder, then put it in the old one's place."""
    for name, (script, ranks, flags) in RUNS.items():
        folder = SAMPLES / name
        shutil.rmtree(folder, ignore_errors=True)
        command = ["fsdp-profile", "run", "-n", str(ranks), "--no-kineto", "-o", f"sample_runs/{name}"]
        command += [f"examples/{script}", *MODEL, *flags]
        print("$", " ".join(command), flush=True)
        subprocess.run([sys.executable, "-m", "fsdp_profile", *command[1:]], cwd=HERE.parent, check=True)
        for raw in folder.glob("rank_*/raw"):
            shutil.rmtree(raw)
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        print(f"{name}: {size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
