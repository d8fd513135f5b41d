"""Peak memory of a transformer's forward and backward under DDP and FSDP FULL_SHARD, on 2 and 4 ranks.

By default 24 blocks of width 3072, 3.03 billion parameters. A machine without a GPU for every rank runs on CPU ranks,
with a smaller width that fits its memory and a minute or two; which, is said. One script, recorded under both
strategies by `fsdp-profile run --as ddp --as fsdp`; the losses are checked. The full size is then simulated, by
`fsdp-profile plan`, and marked as estimate.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil
import torch

from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.compare.replicated import replicated_estimate
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.humanize import bytes_text, ratio_text

SCRIPT: Final = Path(__file__).resolve().parent / "scripts" / "forward_backward.py"
HEAD_WIDTH: Final = 64
FLOAT_BYTES: Final = 4
WIDTHS: Final = (3072, 2048, 1536, 1024, 768, 512, 384, 256, 128)
"""Tried on CPU, widest first."""
CPU_NUMEL: Final = 25_000_000
"""More parameters than this take CPU ranks more than a few minutes."""
CPU_VOCAB: Final = 2048
CPU_SEQ_LEN: Final = 64
CPU_MEMORY_RATIO: Final = 0.4
"""Of the free host memory, what the ranks of DDP may take together."""
DDP_COPIES: Final = 4
"""Parameters, gradients, buckets, and as much again for activations and the transport."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Of the transformer and its batch."""

    layers: int
    dim: int
    vocab: int
    seq_len: int
    batch: int

    @property
    def numel(self) -> int:
        """Parameters: attention 4 dim^2, MLP 8 dim^2 and two LayerNorms a block; embeddings, final norm, head."""
        block = 12 * self.dim**2 + 4 * self.dim
        return self.layers * block + (2 * self.vocab + self.seq_len + 2) * self.dim

    @property
    def flags(self) -> list[str]:
        """As the script takes them."""
        sizes = {"layers": self.layers, "dim": self.dim, "vocab": self.vocab, "seq-len": self.seq_len,
                 "batch": self.batch, "heads": max(self.dim // HEAD_WIDTH, 1)}  # fmt: skip
        return [part for name, size in sizes.items() for part in (f"--{name}", str(size))]


def main() -> None:
    """Record both strategies on each number of ranks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("layers", 24), ("dim", 3072), ("vocab", 50_304), ("seq-len", 2048), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"default: {size}, on CPU what fits")
        parser.set_defaults(**{f"asked_{name.replace('-', '_')}": size})
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], metavar="N", help="default: 2 4")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd", help="sgd keeps no state (default)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="keep the runs here")
    args = parser.parse_args()
    asked = {name: getattr(args, name) for name in ("layers", "dim", "vocab", "seq_len", "batch")}
    whole = Sizes(**{name: size or getattr(args, f"asked_{name}") for name, size in asked.items()})
    on_gpus = torch.cuda.device_count() >= max(args.ranks)
    sizes = whole if on_gpus or args.dim else fitting(whole, asked, ranks=max(args.ranks))
    place = torch.cuda.get_device_name(0) if on_gpus else "CPU ranks over gloo"
    print(f"{sizes.numel:,} parameters ({sizes.layers} blocks of width {sizes.dim}), batch {sizes.batch} x "
          f"{sizes.seq_len}, {args.optimizer}, on {place}", flush=True)  # fmt: skip
    if sizes != whole:
        print(f"  in place of {whole.numel:,}: this machine has no GPU for each of {max(args.ranks)} ranks")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.output or Path(scratch)
        rows = [measured(sizes, args, ranks=ranks, into=folder / f"{ranks}ranks") for ranks in args.ranks]
    print(f"\n{'ranks':>5}  {'DDP peak':>22}  {'FSDP peak':>22}  {'reduction':>10}  losses")
    print("\n".join(rows))
    if sizes != whole:
        print(f"\nAt {whole.numel:,} parameters, batch {whole.batch} x {whole.seq_len}, fp32:")
        for ranks in args.ranks:
            print(simulated(whole, args, ranks=ranks), flush=True)


def fitting(whole: Sizes, asked: dict[str, int | None], *, ranks: int) -> Sizes:
    """The widest model of so many blocks that CPU ranks hold in memory, and train in minutes; what was asked stays."""
    room = CPU_MEMORY_RATIO * psutil.virtual_memory().available
    small = replace(whole, vocab=asked["vocab"] or CPU_VOCAB, seq_len=asked["seq_len"] or CPU_SEQ_LEN)
    for width in WIDTHS:
        found = replace(small, dim=width)
        if found.numel <= CPU_NUMEL and ranks * DDP_COPIES * FLOAT_BYTES * found.numel <= room:
            return found
    return replace(small, dim=WIDTHS[-1])


def measured(sizes: Sizes, args: argparse.Namespace, *, ranks: int, into: Path) -> str:
    """A row of the table."""
    command = ["run", "-n", str(ranks), "--no-kineto", "--as", "ddp", "--as", "fsdp", "-o", str(into), str(SCRIPT),
               *sizes.flags, "--steps", str(args.steps), "--optimizer", args.optimizer]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "fsdp_profile", *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\n{ranks} ranks: the recording ended with exit code {done.returncode}")
    ddp, fsdp = load_run(into / "ddp"), load_run(into / "fsdp")
    if all(record.exit_code == 0 for record in ddp.manifest.ranks):
        found = compare([ddp, fsdp], baseline=ddp)
        base, mine = found.runs
        agree = "not recorded" if mine.losses is None else "equal" if mine.losses.is_equal else "NOT equal"
        return _row(ranks, base.peak.allocated_bytes, mine.peak.allocated_bytes, agree)
    estimate = replicated_estimate(fsdp)
    if estimate is None:
        sys.exit(f"{ranks} ranks: DDP ran out of memory, and the FSDP run has no allocator events to estimate it from")
    return _row(ranks, estimate.peak_bytes, _peak_bytes(fsdp), "DDP ran out of memory: its peak is an ESTIMATE")


def _peak_bytes(run: Run) -> int:
    rank = worst_rank(run)
    found = peak(run, rank=rank) if rank is not None else None
    return found.allocated_bytes if found is not None else 0


def _row(ranks: int, ddp_bytes: int, fsdp_bytes: int, agree: str) -> str:
    less = ratio_text((ddp_bytes - fsdp_bytes) / ddp_bytes, digits=2)
    return f"{ranks:>5}  {bytes_text(ddp_bytes):>22}  {bytes_text(fsdp_bytes):>22}  {less:>10}  {agree}"


def simulated(sizes: Sizes, args: argparse.Namespace, *, ranks: int) -> str:
    """The same row from `fsdp-profile plan`: the script's own steps without data, in fp32, on no device at all."""
    command = ["plan", str(SCRIPT), "--world-size", str(ranks), "--as", "ddp", "--as", "fsdp", "--json", "--",
               *sizes.flags, "--steps", "2", "--optimizer", args.optimizer]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "fsdp_profile", *command], capture_output=True, text=True)
    if done.returncode:
        return f"{ranks:>5}  not simulated: {done.stderr.strip().splitlines()[-1]}"
    peaks = {row["strategy"]: row["peak_bytes"] for row in json.loads(done.stdout)["rows"]}
    return _row(ranks, peaks["ddp"], peaks["fsdp"], "simulated: an ESTIMATE")


if __name__ == "__main__":
    main()
