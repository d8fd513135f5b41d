"""A recording of three steps of a tiny model, and what each source gave."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fsdp_profile.core.humanize import bytes_text, ratio_text
from fsdp_profile.core.layout import packaged
from fsdp_profile.core.machine import Fact, State

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run

_MODEL: Final = ("--dim", "64", "--layers", "2", "--batch", "1", "--seq-len", "16", "--steps", "3")
_RANKS: Final = 2
_TIMEOUT_S: Final = 300.0
_NAME: Final = "trial"


def try_out() -> tuple[list[Fact], dict[str, Any] | None]:
    """Record, read, delete; the facts, and the numbers (None where the recording failed).

    Two ranks, on devices where there are two, on the one device or CPU otherwise.
    """
    try:
        num_ranks = _num_ranks()
    except (ImportError, OSError) as e:  # a library of it is missing, or another torch is in the way
        return [_failed(f"torch cannot be imported: {e}")], None
    with tempfile.TemporaryDirectory(prefix="fsdp-profile-doctor-") as folder:
        path = Path(folder) / "run"
        script = packaged("examples") / "train_fsdp2.py"
        words = [sys.executable, "-m", "fsdp_profile", "run", "-n", str(num_ranks), "-o", str(path), str(script)]
        try:
            done = subprocess.run(
                [*words, *_MODEL], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": folder},  # torch leaves things there
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [_failed(f"did not come to its end in {_TIMEOUT_S:.0f} s")], None
        if done.returncode:
            return [_failed(f"exit code {done.returncode}: {_last_line(done.stderr)}")], None
        return _read(path)


def _num_ranks() -> int:
    import torch

    devices = torch.cuda.device_count()
    return min(devices, _RANKS) if devices else _RANKS


def _failed(why: str) -> Fact:
    return Fact(name=_NAME, state=State.MISSING, found=why, action="record examples/train_fsdp2.py to see all of it")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["it said nothing"])[-1][:200]


def _read(path: Path) -> tuple[list[Fact], dict[str, Any]]:
    from fsdp_profile.analysis.memory.ledger import conservation, peak
    from fsdp_profile.commands._opening import read_run

    run = read_run(path)
    manifest = run.manifest
    facts = [_source(name, text) for name, text in manifest.sources.items()]
    facts += [Fact(name="warning", state=State.LIMITED, found=text) for text in manifest.warnings]
    peaks = [found for rank in run.ranks if (found := peak(run, rank=rank)) is not None]
    laws = [conservation(run, rank=rank) for rank in run.ranks]
    events = sum(law.num_events for law in laws)
    errors = sum(law.category_errors + (law.reported_errors or 0) for law in laws)
    unknown = max((found.unknown_ratio for found in peaks), default=None)
    ledger = f"{events:,} events of {len(run.ranks)} rank{'s' if len(run.ranks) != 1 else ''}, {errors} off"
    if peaks:
        most = max(found.allocated_bytes for found in peaks)
        ledger += f", UNKNOWN {ratio_text(unknown, digits=2)} of a peak of {bytes_text(most)}"
    facts.append(Fact(name="ledger", state=State.OK if events and not errors else State.LIMITED, found=ledger))
    facts.insert(0, Fact(name=_NAME, state=State.OK, found=f"{manifest.strategy_detail}, on {_where(run)}"))
    numbers = {
        "strategy": manifest.strategy_detail, "device_type": manifest.device_type, "backend": manifest.backend,
        "sources": manifest.sources, "warnings": manifest.warnings, "num_events": events, "num_errors": errors,
        "unknown_ratio": unknown,
    }  # fmt: skip
    return facts, numbers


def _source(name: str, text: str) -> Fact:
    return Fact(name=name, state=State.OK if text == "recorded" else State.LIMITED, found=text)


def _where(run: Run) -> str:
    is_cpu = run.manifest.device_type == "cpu"
    return f"{'CPU' if is_cpu else run.manifest.device_name or run.manifest.device_type}, {run.manifest.backend}"
