"""Run Holistic Trace Analysis (HTA) on the Kineto traces of a run.

HTA needs device streams, so it has no result for a CPU run. Where it fails on a trace, its own message is kept.
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsdp_profile.analysis.run import Run
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, MissingExtraError
from fsdp_profile.ingest.imported.run import TRACE

TIMEOUT_S: Final = 900
_TRACES: Final = ("kineto.json", "kineto.json.gz")


@dataclass(frozen=True, kw_only=True, slots=True)
class HtaTable:
    """One of HTA's analyses."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    error: str | None
    """HTA's own message where the analysis failed; None where it did not."""


def hta_tables(run: Run, *, folder: Path | None = None, timeout_s: float = TIMEOUT_S) -> list[HtaTable]:
    """HTA's temporal breakdown, overlap, idle time and kernel breakdown over the run's device traces.

    Raises:
        MissingExtraError: HTA is not installed.
        InputError: the run has no trace with device activity, or an imported one is not where it was.
    """
    return tables_of_traces(device_traces(run, folder=folder), timeout_s=timeout_s)


def tables_of_traces(traces: dict[int, Path], *, timeout_s: float = TIMEOUT_S) -> list[HtaTable]:
    """HTA's tables of any trace files, given by rank."""
    if importlib.util.find_spec("hta") is None:
        raise MissingExtraError("Holistic Trace Analysis", "hta")
    request = json.dumps({"traces": {rank: str(path.resolve()) for rank, path in traces.items()}})
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_profile.analysis.hta.worker"],
            input=request, capture_output=True, text=True, env=environment, timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [_failed("all", f"HTA did not finish within {timeout_s:.0f} s")]
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [_failed("all", f"HTA ended with exit code {done.returncode}: {last}")]
    return [
        HtaTable(
            name=name,
            columns=tuple(found.get("columns", ())),
            rows=tuple(tuple(row) for row in found.get("rows", ())),
            error=found.get("error"),
        )
        for name, found in answer.items()
    ]


def device_traces(run: Run, *, folder: Path | None = None) -> dict[int, Path]:
    """The run's device traces by rank: those that the capture wrote, or those that were imported, where they are now.

    Args:
        run: the run.
        folder: where imported traces are; None: where they were at the import.

    Raises:
        InputError: the run has no trace with device activity, or an imported one is not there.
    """
    found = {}
    for rank in run.ranks:
        kept = layout.raw_dir(run.path if folder is None else folder, rank)
        path = next((kept / name for name in _TRACES if (kept / name).exists()), None)
        if path is not None:
            found[rank] = path
    is_bundle = run.source is not None
    if not found and run.manifest.device_type != "cpu":
        if is_bundle and folder is None:  # a bundle may come from anybody, so it must not choose a file of this machine
            raise InputError(
                f"{run.path}: a bundle holds no traces; say where they are with: "
                f"fsdp-profile hta {run.path} --traces FOLDER"
            )
        found = _imported_traces(run, folder)
    if not found:
        why = "it ran on CPU" if run.manifest.device_type == "cpu" else "no Kineto trace was kept"
        raise InputError(
            f"{run.path}: no trace with device activity for HTA ({why}); "
            f"our own numbers: fsdp-profile show {run.path} collectives"
        )
    return found


def _imported_traces(run: Run, folder: Path | None) -> dict[int, Path]:
    """The traces of an imported run, which holds their names but not the traces themselves."""
    found = {}
    for source in run.manifest.extra.get("imported", []):
        if source["kind"] != TRACE:
            continue
        name = Path(str(source["file"])).name
        path = folder / name if folder is not None else Path(str(source.get("path", "")))
        if path.name != name or not path.is_file():
            where = "where it was at the import" if folder is None else f"in {folder}"
            raise InputError(
                f"{run.path}: HTA reads the traces themselves, and {name} is not {where}; "
                f"say where with: fsdp-profile hta {run.path} --traces FOLDER"
            )
        found[int(source["rank"])] = path
    return found


def _failed(name: str, why: str) -> HtaTable:
    return HtaTable(name=name, columns=(), rows=(), error=why)
