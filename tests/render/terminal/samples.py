"""Two small runs of one model, what a console prints, and the comparison of it with a golden file."""

import io
import os
from pathlib import Path

from builder import RunBuilder
from rich.console import Console
from rich.style import Style

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Model, RankRecord, Receipt
from fsdp_profile.core.schema import SETUP_STEP, CollectiveKind, Ending, Phase, SpanKind, Strategy, UnitKind

MIB, KIB = 1 << 20, 1 << 10
MS = 1_000_000
GOLDEN = Path(__file__).resolve().parents[2] / "golden"

MODEL = Model(
    name="GPT",
    numel=3 * MIB,
    trainable_numel=3 * MIB,
    num_params=30,
    param_bytes=12 * MIB,
    dtypes={"float32": 3 * MIB},
)
RECEIPT = Receipt(
    hook_events=1_234,
    allocator_events=56_789,
    flush_ns=910 * MS,
    raw_bytes=11 * MIB,
    convert_ns=120 * MS,
    recorded_step_ns=11_800_000,
    bare_step_ns=10_000_000,
    num_bare_steps=24,
)
NO_GPU = {
    "device_used_peak_bytes": "no NVIDIA driver",
    "reserved_peak_bytes": "the CPU allocator has no reserved pool",
}


def printed(renderable: object, *, width: int, colour: bool = False) -> str:
    """What a console of this width prints."""
    # rich keeps the codes of a style in the colours of the first console that used it.
    Style.parse.cache_clear()
    out = io.StringIO()
    console = Console(
        _environ={"TERM": "xterm"},
        file=out,
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        no_color=False,
    )
    console.print(renderable)
    return out.getvalue()


def check_golden(name: str, text: str) -> None:
    """Equal to the file under tests/golden, blanks at the ends of lines apart; or write it anew."""
    found = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FSDP_PROFILE_UPDATE_GOLDEN") == "1":
        path.write_text(found, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: make golden, then read it"
    assert found == path.read_text(encoding="utf-8")


def fsdp2_run(path: Path, name: str = "fsdp2") -> Run:
    """Two ranks, two steps; rank 1 peaks higher, in the backward of layers.1 in step 1."""
    b = _started(path / name, name, Strategy.FSDP2, "FSDP2 reshard_after_forward=True, 3 units, 2 ranks")
    for rank in (0, 1):
        _steps(b.rank(rank))
        for unit, numel in (("", MIB), ("layers.0", MIB), ("layers.1", MIB)):
            b.unit(unit, numel=numel, sharded=2 * MIB, unsharded=4 * MIB)
        _fsdp2_spans(b)
        b.alloc(at=1 * MS, size=6 * MIB, category=Category.PARAM, name="weight")
        b.alloc(at=2 * MS, free=9 * MS, size=4 * MIB, category=Category.UNSHARDED_PARAM, unit=0)
        b.alloc(at=95 * MS, size=12 * MIB, category=Category.OPTIMIZER_STATE, name="exp_avg")
        for start in (10, 110):
            at = start * MS
            b.alloc(at=at + 1, free=at + 90 * MS, size=2 * KIB, category=Category.INPUT)
            b.alloc(at=at + 10 * MS, free=at + 70 * MS, size=(8 + rank) * MIB, unit=1, operator="aten::gelu")
            b.alloc(
                at=at + 50 * MS, free=at + 60 * MS, size=4 * MIB, category=Category.UNSHARDED_PARAM, unit=2,
                name="layers.1.weight", operator="FSDP::all_gather_copy_out",
            )  # fmt: skip
            b.alloc(at=at + 51 * MS, free=at + 52 * MS, size=512, category=Category.UNKNOWN)
    return b.build()


def ddp_run(path: Path, name: str = "ddp") -> Run:
    """Two equal ranks, two steps, one bucket."""
    b = _started(path / name, name, Strategy.DDP, "DDP, 1 bucket, 2 ranks")
    for rank in (0, 1):
        _steps(b.rank(rank))
        b.unit(
            "bucket 0", numel=3 * MIB, sharded=12 * MIB, unsharded=12 * MIB, kind=UnitKind.DDP_BUCKET, shard_size=1,
            replicate_size=2,
        )  # fmt: skip
        b.alloc(at=1 * MS, size=12 * MIB, category=Category.PARAM)
        b.alloc(at=2 * MS, size=12 * MIB, category=Category.BUCKET, unit=0)
        b.alloc(at=95 * MS, size=24 * MIB, category=Category.OPTIMIZER_STATE)
        for start in (10, 110):
            at = start * MS
            b.alloc(at=at + 1, free=at + 90 * MS, size=2 * KIB, category=Category.INPUT)
            b.alloc(at=at + 10 * MS, free=at + 70 * MS, size=8 * MIB, operator="aten::gelu")
            b.kernel(at, at + 62 * MS)
            b.collective(
                CollectiveKind.ALL_REDUCE,
                at + 55 * MS,
                at + 65 * MS,
                unit=0,
                size_bytes=12 * MIB,
                phase=Phase.BACKWARD,
            )
    return b.build()


def _started(path: Path, name: str, strategy: Strategy, detail: str) -> RunBuilder:
    records = [
        RankRecord(
            rank=r,
            host="node-1",
            pid=40 + r,
            device="x86_64",
            ending=Ending.COMPLETED,
            exit_code=0,
            num_steps=2,
        )
        for r in (0, 1)
    ]
    return RunBuilder(name, strategy=strategy, path=path).set(
        strategy_detail=detail,
        device_name="x86_64",
        backend="gloo",
        script=f"train_{name}.py",
        script_args=["--steps", "2"],
        model=MODEL,
        receipt=RECEIPT,
        not_recorded=NO_GPU,
        sources={"units": "recorded", "NVML": "not recorded: no NVIDIA driver"},
        ranks=records,
    )


def _steps(b: RunBuilder) -> None:
    b.step(SETUP_STEP, 0, 10 * MS).step(0, 10 * MS, 110 * MS).step(1, 110 * MS, 210 * MS)
    b.phase(Phase.SETUP, 0, 10 * MS, step=SETUP_STEP)
    for step, start in ((0, 10 * MS), (1, 110 * MS)):
        b.phase(Phase.FORWARD, start, start + 40 * MS, step=step)
        b.phase(Phase.BACKWARD, start + 40 * MS, start + 80 * MS, step=step)
        b.phase(Phase.OPTIMIZER, start + 80 * MS, start + 90 * MS, step=step)
        b.phase(Phase.OTHER, start + 90 * MS, start + 100 * MS, step=step)


def _fsdp2_spans(b: RunBuilder) -> None:
    for step, start in ((0, 10 * MS), (1, 110 * MS)):
        for unit in (0, 1, 2):
            at = start + (5 + 10 * unit) * MS
            back = start + (70 - 10 * unit) * MS
            for begin in (at, back):
                b.span(unit, SpanKind.ALL_GATHER, begin, begin + 1 * MS, step=step)
                b.span(unit, SpanKind.UNSHARDED, begin, begin + 8 * MS, step=step)
                b.span(unit, SpanKind.RESHARD, begin + 8 * MS, begin + 9 * MS, step=step)
                b.collective(CollectiveKind.ALL_GATHER, begin, begin + 3 * MS, unit=unit, step=step, size_bytes=4 * MIB)
            b.span(unit, SpanKind.FORWARD, at, at + 9 * MS, step=step)
            b.span(unit, SpanKind.BACKWARD, back, back + 9 * MS, step=step, phase=Phase.BACKWARD)
            b.collective(
                CollectiveKind.REDUCE_SCATTER,
                back + 7 * MS,
                back + 10 * MS,
                unit=unit,
                step=step,
                size_bytes=4 * MIB,
            )
            b.kernel(at + 2 * MS, at + 8 * MS, step=step).kernel(back + 1 * MS, back + 8 * MS, step=step)
