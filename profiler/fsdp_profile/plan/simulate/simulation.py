"""One step of the user's own script without GPUs and without data, recorded like any run.

The script runs in a process of its own (`rank_process`) as rank 0 of N: its tensors hold no data, its process groups
move nothing. What it allocates goes through the capture's log, the ledger and the analysis, so that the answer is a
`Run`: its bytes are estimates and its times are not measurements.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import InputError, MissingExtraError, SimulationError, UsageError
from fsdp_profile.core.layout import claim_run_dir
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.units import find_strategy
from fsdp_profile.ingest.finalize import finalize
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.plan.formulas.costs import Basis, PlanRow
from fsdp_profile.plan.formulas.strategies import SIMULATED, Layout, World, wrapped_as
from fsdp_profile.plan.measured import layout_of, most_of_states

DEFAULT_STEPS: Final = 2
"""The first makes the optimizer's states, the second is like all that follow."""
_RESULT: Final = "simulation.json"
_LOG: Final = "simulation.log"
_GATHERED: Final = (Category.UNSHARDED_PARAM, Category.ALL_GATHER)
_REDUCED: Final = (Category.UNSHARDED_GRAD, Category.REDUCE_SCATTER, Category.BUCKET)


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """The result of a simulated rank."""

    run: Run
    layout: Layout | None
    """What the script's model was wrapped in instead; None: as the script itself does it."""
    world: World
    peak: Peak
    """Over the simulated steps."""
    states: dict[Category, int]
    """The most bytes of each category of model states."""
    placeholder_reads: dict[str, int]
    """Source line -> how often it read a value that nobody computed, and got zero."""
    note: str
    """Why not all of the steps were simulated; '' when all were."""
    fake_tensors: bool
    cuda_as_cpu: bool
    """It asked for CUDA devices and got the CPU: blocks are not rounded, and torch chooses as on a CPU."""


def simulate(
    script: Sequence[str], *, world: World, layout: Layout | None = None, run_dir: Path | None = None,
    steps: int = DEFAULT_STEPS, fake_tensors: bool = True,
) -> Simulation:  # fmt: skip
    """Run a script (its path and arguments) as rank 0 of `world`.

    Args:
        script: path of the script, then its arguments.
        world: the ranks that the script sees.
        layout: what to wrap the model in, instead of what the script chooses.
        run_dir: where the run is kept; None: in a temporary folder, until this process ends.
        steps: optimizer steps to simulate.
        fake_tensors: False: real tensors, so that only the other ranks are missing. Needs the memory of one rank.

    Raises:
        SimulationError: the script cannot be simulated; says where.
        UsageError: a layout that cannot be simulated, or ranks that it cannot divide.
    """
    _check(script, world, layout, steps)
    folder = claim_run_dir(run_dir) if run_dir is not None else _temporary()
    config = {
        "run_dir": str(folder.resolve()),
        "world_size": world.size,
        "steps": steps,
        "fake_tensors": fake_tensors,
        "strategy": wrapped_as(layout, world) if layout is not None else None,
    }
    words = [sys.executable, "-m", "fsdp_profile.plan.simulate.rank_process", json.dumps(config), *script]
    with (folder / _LOG).open("wb") as log:
        code = subprocess.run(
            words, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment()
        ).returncode
    result = _result(folder, script, code)
    if result["steps"] == 0:
        raise SimulationError(_why_not(result, script, fake_tensors=fake_tensors))
    run = _finish(folder, script, world, fake_tensors=fake_tensors)
    found, failure = ledger.peak(run, rank=0), result["failure"]
    if found is None:
        why = f" before it failed: {_at(failure)}" if failure else ""
        raise SimulationError(f"{script[0]}: no allocation was seen in its steps{why}; plan it with --params instead")
    note = f"simulated to step {result['steps']} only: {_at(failure)}" if failure else ""
    return Simulation(
        run=run, layout=layout, world=world, peak=found, states=most_of_states(run, rank=0),
        placeholder_reads=result["placeholder_reads"], note=note, fake_tensors=fake_tensors,
        cuda_as_cpu=bool(result["cuda_as_cpu"]),
    )  # fmt: skip


def simulated_row(found: Simulation) -> PlanRow:
    """A simulation as a row of a plan. The states are the most they held, the rest is what the peak is made of."""
    peak = found.peak
    return PlanRow(
        layout=found.layout or layout_of(found.run),
        world_size=found.world.size,
        param_bytes=found.states[Category.PARAM],
        grad_bytes=found.states[Category.GRAD],
        optimizer_bytes=found.states[Category.OPTIMIZER_STATE],
        gathered_bytes=peak.bytes_of(_GATHERED),
        reduced_bytes=peak.bytes_of(_REDUCED),
        activation_bytes=peak.by_category.get(Category.ACTIVATION, 0),
        traffic_bytes=None,
        peak_bytes=peak.allocated_bytes,
        basis=Basis.SIMULATED,
        by_category={str(category): size for category, size in peak.by_category.items()},
        remark=f"peak in {peak.phase.lower()}" + (f" of {peak.unit_name or '(root)'}" if peak.unit >= 0 else ""),
    )


def _check(script: Sequence[str], world: World, layout: Layout | None, steps: int) -> None:
    if find_spec("torch") is None:
        raise MissingExtraError("simulating a script", "capture")
    path = Path(script[0])
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{script[0]}: {what}; give the training script's path, or --params for formulas")
    if layout is not None and layout not in SIMULATED:
        known = ", ".join(SIMULATED)
        raise UsageError(
            f"--as {layout}: a script cannot be wrapped this way, only as {known}; --params has its formulas"
        )
    if layout is Layout.HSDP:
        world.shards(layout)
    if steps < 1:
        raise UsageError(f"--steps {steps}: give 1 or more")


def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="fsdp-profile-plan-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _environment() -> dict[str, str]:
    """One thread: nothing is computed. No bytecode, no launcher's rank from outside."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISTRIBUTED_DEBUG": "OFF"}


def _result(folder: Path, script: Sequence[str], code: int) -> dict[str, Any]:
    path = folder / _RESULT
    if not path.exists():
        last = (folder / _LOG).read_text(errors="replace").strip().splitlines()
        why = last[-1] if last else "it said nothing"
        raise SimulationError(f"{script[0]}: the simulated rank ended with code {code} ({why}); see {folder / _LOG}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _why_not(result: dict[str, Any], script: Sequence[str], *, fake_tensors: bool) -> str:
    failure = result["failure"]
    if failure is None:
        return f"{script[0]}: it ended without an optimizer step; does it need arguments? give them after --"
    offer = "--params NUMBER for formulas"
    if fake_tensors:
        offer = f"--real (real tensors on this machine, the other ranks missing), or {offer}"
    return f"{_at(failure)}; try {offer}"


def _at(failure: dict[str, str]) -> str:
    where = f"{failure['where']}: {failure['line']}: " if failure["where"] else ""
    return f"{where}{failure['error']}"


def _finish(folder: Path, script: Sequence[str], world: World, *, fake_tensors: bool) -> Run:
    """The tables and the manifest; entries that say "recorded" say "simulated" instead."""
    how = "no data in its tensors" if fake_tensors else "real tensors"
    started = Manifest(
        name=folder.resolve().name,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=["fsdp-profile", *sys.argv[1:]],
        script=script[0],
        script_args=list(script[1:]),
    )
    made = finalize(folder, started, exit_codes={0: 0}, world_size=1)
    _, detail = find_strategy(_unit_rows(folder), world.size)
    warning = f"simulated, not measured: rank 0 of {world.size} alone, {how}; its times are not measurements"
    manifest = replace(
        made,
        world_size=world.size,
        strategy_detail=detail,
        warnings=[warning, *made.warnings],
        sources={**made.sources, "allocator events": f"simulated: {how}"},
        extra={**made.extra, "simulated": {"world_size": world.size, "fake_tensors": fake_tensors}},
    )
    write_manifest(folder, manifest)
    return load_run(folder)


def _unit_rows(folder: Path) -> list[dict[str, Any]]:
    from fsdp_profile.core.layout import table_path
    from fsdp_profile.ingest.tables import read_table

    found: list[dict[str, Any]] = read_table(table_path(folder, 0, "units"), "units").to_pylist()
    return found
