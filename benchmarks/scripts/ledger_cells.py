"""The cells of the ledger matrix: which script, which flags, how many ranks, which bar."""

from dataclasses import dataclass

EASY_BAR_RATIO = 0.01
HARD_BAR_RATIO = 0.05
TOOLS = ("profiler-run", "profiler-step", "memtracker")
"""The last is the one that may raise in the middle of a step, which leaves the other ranks waiting."""

WRAPS = (
    *(f"fsdp1-{s}-{p}" for s in ("full", "grad-op", "no-shard", "hybrid") for p in ("orig", "flat")),
    "fsdp2", "fsdp2-no-reshard", "fsdp2-int", "hsdp", "ddp", "ddp-view",
)  # fmt: skip
DTYPES = ("fp32", "bf16")
VARIANTS = ("plain", "checkpoint", "accumulate", "no-sync", "lora", "offload")
HARD = (
    "tied", "tied-fsdp1", "tied-ddp", "moe", "moe-ddp", "adapters", "offload", "accumulate", "accumulate-fsdp1",
    "tensor-parallel", "two-models", "two-models-ddp", "meta-init", "ignored", "checkpoint-outside",
    "checkpoint-reentrant", "clip-and-log", "ema", "data-set", "ddp-unused", "ddp-compressed", "compile",
)  # fmt: skip
_ON_FOUR_RANKS = ("tensor-parallel",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One row of the table to be made."""

    name: str
    script: str
    args: tuple[str, ...]
    ranks: int
    bar_ratio: float
    tools: tuple[str, ...] = TOOLS


def all_cells(*, quick: bool = False) -> list[Cell]:
    """Every cell in the order of the table; `quick`: each wrap once plain, and every variant of FSDP2."""
    cells = [
        _cell(wrap, dtype, variant)
        for wrap in WRAPS
        for dtype in DTYPES
        for variant in VARIANTS
        # FSDP1 cannot offload where the compute device is the CPU, and DDP has no offload.
        if variant != "offload" or wrap.startswith(("fsdp2", "hsdp"))
    ]
    cells += [_hard(name) for name in HARD]
    if not quick:
        return cells
    return [c for c in cells if c.name.endswith("fp32 plain") or c.name.startswith(("fsdp2 fp32", "hard"))]


def _cell(wrap: str, dtype: str, variant: str) -> Cell:
    return Cell(
        name=f"{wrap} {dtype} {variant}",
        script="ledger_cell.py",
        args=("--wrap", wrap, "--dtype", dtype, "--variant", variant),
        ranks=4 if "hybrid" in wrap or wrap in ("hsdp", "fsdp2-int") else 2,
        bar_ratio=EASY_BAR_RATIO,
    )


def _hard(name: str) -> Cell:
    return Cell(
        name=f"hard {name}",
        script="hard.py",
        args=(name,),
        ranks=4 if name in _ON_FOUR_RANKS else 2,
        bar_ratio=HARD_BAR_RATIO,
        # `to_empty` fails under torch.profiler: "Expected no weakrefs to t1's Tensor object".
        tools=TOOLS[-1:] if name == "meta-init" else TOOLS,
    )
