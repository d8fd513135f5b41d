"""A recorded cell, read: one row of the ledger matrix."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.scripts.ledger_cells import Cell

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.ingest.rank.capture_log import read_capture_log
from fsdp_profile.ingest.rank.communication import transport_ends_ns, with_handed_over
from fsdp_profile.ingest.rank.pairing import pair_cpu_events
from fsdp_profile.ingest.tables import numbers, strings

Ints = np.ndarray[Any, np.dtype[np.int64]]

ROUNDED_AWAY_RATIO = 0.0005  # 0.0 % in the table
STATES = (Category.PARAM, Category.GRAD, Category.OPTIMIZER_STATE)

HEADER = (
    "| cell | peak | UNKNOWN at peak | at worst | events off | states off | closed forms off | MemTracker "
    "| torch.profiler: run | step |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)
FOOTNOTES = """\
peak: worst rank. UNKNOWN at peak: worst rank and step. at worst: its largest share at any event of a step. events off:
events at which a law of the ledger does not hold, all ranks. states off: parameters, gradients and optimizer states
against the storages the script itself holds, bytes. closed forms off: the same against P/N, T/N and 2T/N (P parameters,
T trainable ones, N ranks of a shard); 0 where there is none. MemTracker: the ledger's peak against FSDPMemTracker's
(FSDP2) or MemTracker's of rank 0; in brackets without what was allocated under the transport's operators.
torch.profiler: share without a category in its memory timeline of rank 0, at its peak / over byte-time, for the whole
run and for the last step alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was found of one cell; None where it was not measured."""

    cell: str
    bar_ratio: float
    failed: str | None = None
    """Why there is no recording, in one line."""
    peak_bytes: int | None = None
    unknown_ratio: float | None = None
    unknown_worst_ratio: float | None = None
    category_errors: int | None = None
    reported_errors: int | None = None
    states_off_bytes: int | None = None
    closed_off_bytes: int | None = None
    scratch_bytes: int | None = None
    """Of the transport, at the ledger's peak of the worst rank."""
    tracker: str = ""
    tracker_ratio: float | None = None
    """The ledger's peak of rank 0 over the tool's."""
    tracker_without_scratch_ratio: float | None = None
    """The same without what was allocated under the transport's operators."""
    tracker_raises: str | None = None
    profiler: tuple[str, str] = ("", "")

    @property
    def is_within_bar(self) -> bool:
        """UNKNOWN within the bar, every event adds up, every state equals what is known of it."""
        if self.failed is not None or self.unknown_ratio is None or self.unknown_ratio > self.bar_ratio:
            return False
        return not (self.category_errors or self.reported_errors or self.states_off_bytes or self.closed_off_bytes)

    def as_json(self) -> dict[str, Any]:
        """All fields, and whether it is within the bar."""
        return {**asdict(self), "is_within_bar": self.is_within_bar}


def failed_row(cell: Cell, why: str) -> Row:
    """The row of a cell that could not be recorded."""
    return Row(cell=cell.name, bar_ratio=cell.bar_ratio, failed=why)


def read_row(cell: Cell, folder: Path) -> Row:
    """The row of a recorded cell, with what other tools said of it where they ran."""
    run = load_run(folder / "run")
    laws = [memory.conservation(run, rank=rank) for rank in run.ranks]
    peaks = {rank: memory.peak_of_steps(run, rank=rank) for rank in run.ranks}
    if not all(peaks.values()):
        return failed_row(cell, "no allocator events: " + "; ".join(run.manifest.warnings)[:120])
    found = {rank: _most(run, rank) for rank in run.ranks}
    top = max(p.allocated_bytes for of_rank in peaks.values() for p in of_rank)
    facts = {rank: json.loads((folder / "facts" / f"facts_{rank}.json").read_text()) for rank in run.ranks}
    tracked = _tracker(folder, run)
    return Row(
        cell=cell.name,
        bar_ratio=cell.bar_ratio,
        peak_bytes=top,
        unknown_ratio=max(p.unknown_ratio for of_rank in peaks.values() for p in of_rank),
        unknown_worst_ratio=max(_worst_unknown_ratio(run, rank) for rank in run.ranks),
        category_errors=sum(law.category_errors for law in laws),
        reported_errors=sum(law.reported_errors or 0 for law in laws),
        states_off_bytes=max(_states_off(found[rank], facts[rank]["tensors"]) for rank in run.ranks),
        closed_off_bytes=max(_closed_off(run, rank, found[rank], facts[rank]["expected"]) for rank in run.ranks),
        scratch_bytes=max(_without_scratch(run, rank)[1] for rank in run.ranks),
        **tracked,
        profiler=(_profiler(folder, "profiler-run"), _profiler(folder, "profiler-step")),
    )


def _most(run: Run, rank: int) -> dict[Category, int]:
    """The most bytes each category holds at any event of a training step."""
    steps = numbers(run.table("memory_samples", rank=rank), "step")
    ledger = memory.timeline(run, rank=rank)
    return {category: int(values[steps >= 0].max()) for category, values in ledger.by_category.items()}


def _worst_unknown_ratio(run: Run, rank: int) -> float:
    """The largest share of UNKNOWN at any event of a training step."""
    ledger = memory.timeline(run, rank=rank)
    steps = numbers(run.table("memory_samples", rank=rank), "step")
    share = ledger.by_category[Category.UNKNOWN] / np.maximum(ledger.allocated_bytes, 1)
    return float(share[steps >= 0].max())


def _states_off(found: dict[Category, int], tensors: dict[str, int]) -> int:
    return sum(abs(found[category] - tensors[category.value]) for category in STATES)


def _closed_off(run: Run, rank: int, found: dict[Category, int], expected: dict[str, int]) -> int:
    if not expected:
        return 0
    blocks = run.table("allocations", rank=rank)
    is_counter = (strings(blocks, "category") == "OPTIMIZER_STATE") & (strings(blocks, "name") == "step")
    moments = found[Category.OPTIMIZER_STATE] - int(numbers(blocks, "size_bytes")[is_counter].sum())
    known = {**{c.value: found[c] for c in STATES}, "OPTIMIZER_MOMENTS": moments}
    return sum(abs(known[name] - size) for name, size in expected.items())


def _without_scratch(run: Run, rank: int) -> tuple[int, int]:
    """The peak without blocks allocated by the transport, and the transport's bytes at the ledger's own peak."""
    log = read_capture_log(layout.capture_log(run.path, rank))
    events: dict[str, Any] = {**log.allocator, "transport": with_handed_over(log)}
    ledger = pair_cpu_events(**events, transport_end_ns=transport_ends_ns(log), drops=log.drops, tags=log.tags)
    blocks, samples = ledger.blocks, ledger.samples
    carried = blocks.transport >= 0
    delta = np.zeros(len(samples.t_ns) + 1, np.int64)
    np.add.at(delta, blocks.start_event[carried], blocks.size_bytes[carried])
    np.subtract.at(delta, np.minimum(blocks.end_event[carried], len(samples.t_ns)), blocks.size_bytes[carried])
    scratch = delta.cumsum()[:-1]
    in_steps = np.flatnonzero(numbers(run.table("memory_samples", rank=rank), "step") >= 0)
    at_peak = in_steps[np.argmax(samples.allocated_bytes[in_steps])]
    return int((samples.allocated_bytes - scratch)[in_steps].max()), int(scratch[at_peak])


def _measured(folder: Path, name: str) -> dict[str, Any] | None:
    """What a tool said of rank 0; None where it did not run, or not to its end."""
    path = folder / "facts" / f"{name}_0.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def _tracker(folder: Path, run: Run) -> dict[str, Any]:
    """The ledger's peak of rank 0 over MemTracker's, whole and without the transport's scratch."""
    found = _measured(folder, "memtracker")
    if found is None:
        return {}
    if "raises" in found:
        return {"tracker": found["tool"], "tracker_raises": found["raises"]}
    whole = memory.peak(run, rank=0)
    return {
        "tracker": found["tool"],
        "tracker_ratio": whole.allocated_bytes / found["Total"] if whole is not None else None,
        "tracker_without_scratch_ratio": _without_scratch(run, 0)[0] / found["Total"],
    }


def _profiler(folder: Path, name: str) -> str:
    """'12.3 / 45.6 %', or what it raised."""
    found = _measured(folder, name)
    if found is None:
        return ""
    if "raises" in found:
        kind, _, text = found["raises"].partition(":")
        return f"raises {kind}: {text.partition(':')[0].strip()}"
    return f"{found['peak_ratio'] * 100:.1f} / {found['byte_time_ratio'] * 100:.1f} %"


def _off(ratio: float | None) -> str:
    return f"{(ratio - 1) * 100:+.1f} %" if ratio is not None else "not run"


def markdown_line(row: Row) -> str:
    """The row as a line of the table; a cell out of its bar is marked."""
    mark = "" if row.is_within_bar else " **!**"
    if row.failed is not None:
        return f"| {row.cell}{mark} | failed: {row.failed.replace('|', '/')} |" + " |" * 8
    if row.tracker_raises is not None:
        tracker = f"{row.tracker} raises {row.tracker_raises.split(':')[0]}"
    else:
        tracker = _off(row.tracker_ratio)
        if abs((row.tracker_ratio or 1) - 1) > ROUNDED_AWAY_RATIO:
            tracker += f" ({_off(row.tracker_without_scratch_ratio)})"
    cells = [
        f"{row.cell}{mark}",
        bytes_text(row.peak_bytes or 0),
        f"{(row.unknown_ratio or 0) * 100:.2f} %",
        f"{(row.unknown_worst_ratio or 0) * 100:.2f} %",
        f"{(row.category_errors or 0) + (row.reported_errors or 0)}",
        f"{row.states_off_bytes}",
        f"{row.closed_off_bytes}",
        tracker,
        *(text or "not run" for text in row.profiler),
    ]
    return "| " + " | ".join(cells) + " |"
