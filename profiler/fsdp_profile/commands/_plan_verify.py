"""Compare a prediction with a recorded run of the same configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.core.errors import UsageError

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run
    from fsdp_profile.plan.calibrate import Verification
    from fsdp_profile.plan.formulas.costs import PlanRow

_STDERR = 2  # the script's own output: with --json standard output is the document's alone


def verify(rows: Sequence[PlanRow], path: Path) -> Verification:
    """The row of a plan that a run was recorded for, beside the run.

    Raises:
        UsageError: it is a run of another configuration.
    """
    from fsdp_profile.plan.calibrate import Verification, measured_row

    recorded = open_run(path)
    with damage(recorded.path):
        measured = measured_row(recorded)
    match = [r for r in rows if (r.layout, r.world_size) == (measured.layout, measured.world_size)]
    if not match:
        planned = ", ".join(f"{r.layout} on {r.world_size}" for r in rows)
        raise UsageError(
            f"{path}: it is {measured.layout} on {measured.world_size} ranks, which was not planned ({planned}); "
            f"give --as {measured.layout} --world-size {measured.world_size}"
        )
    return Verification(predicted=match[0], measured=measured)


def record(source: Run, rows: Sequence[PlanRow], script: list[str], *, output: Path | None) -> Path:
    """Record the one planned configuration with `fsdp-profile run`; the folder of the run.

    Raises:
        UsageError: more than one is planned, the script is not here, or it did not run.
    """
    from fsdp_profile.core.layout import default_run_dir
    from fsdp_profile.plan.measured import layout_of

    if len(rows) != 1:
        raise UsageError(f"--verify: {len(rows)} configurations are planned; give one --as and one --world-size")
    words = script or [source.manifest.script, *source.manifest.script_args]
    if not Path(words[0]).is_file():
        raise UsageError(f"--verify: {words[0]} is not here; start where the run was recorded, or give the script")
    (row,) = rows
    folder = output if output is not None else default_run_dir(words[0], row.world_size)
    again = [] if row.layout is layout_of(source) else ["--as", _as_run_says(row)]
    command = ["run", "-n", str(row.world_size), *again, "-o", str(folder), *words]
    print(f"fsdp-profile: recording {' '.join(command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "fsdp_profile", *command], stdout=_STDERR, check=False)
    if done.returncode:
        raise UsageError(f"--verify: fsdp-profile {' '.join(command)} ended with exit code {done.returncode}")
    return folder


def _as_run_says(row: PlanRow) -> str:
    """The strategy as `fsdp-profile run --as` takes it."""
    from fsdp_profile.plan.formulas.strategies import DEFAULT_REPLICAS, Layout

    if row.layout is Layout.HSDP:
        return f"hsdp:{row.world_size // DEFAULT_REPLICAS}"
    return "zero2" if row.layout is Layout.FSDP_NO_RESHARD else str(row.layout)
