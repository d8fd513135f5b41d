"""The doorway's part on memory beyond the ledger: device, growth, failed allocations.

Cached and guarded as data.py is.
"""

from dataclasses import dataclass

import numpy as np

from fsdp_dashboard.data import RunFacts, RunRef, ask
from fsdp_profile.analysis.memory import device_waterfall, growth, postmortem, time_window
from fsdp_profile.analysis.memory import host_states as offload
from fsdp_profile.analysis.memory.device_waterfall import Communicator, Waterfall
from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded
from fsdp_profile.analysis.memory.host_states import HostStates
from fsdp_profile.analysis.memory.postmortem import PostMortem
from fsdp_profile.analysis.memory.pyramid import MAX_ROWS
from fsdp_profile.analysis.memory.time_window import TimeWindow
from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.tables import numbers

FirstUse = tuple[Communicator, int | None, int | None]
"""A communicator, the step of its first collective (None: before the first recorded step), and ns since its begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures:
    """The failed allocations of a run, in order of time."""

    fatal: tuple[PostMortem, ...]
    """Those the run ended with."""
    caught: int
    """Those after which the script went on."""


def failures(ref: RunRef, run: RunFacts) -> Failures:
    """What failed; of a run that came to its end nothing was fatal, of an imported one its end is not known."""
    found: list[PostMortem] = ask(postmortem.post_mortems, ref)
    is_its_end = not run.manifest.complete or run.manifest.is_imported
    return Failures(fatal=tuple(found) if is_its_end else (), caught=0 if is_its_end else len(found))


def waterfall(ref: RunRef, *, rank: int, event: int | None = None) -> Waterfall | None:
    """From what tensors hold to what the device has in use, at an event or at the peak; None on CPU."""
    found: Waterfall | None = ask(device_waterfall.waterfall, ref, rank=rank, event=event)
    return found


def host_states(ref: RunRef, *, rank: int) -> HostStates | None:
    """States kept on the host under CPU offload; None where there are none."""
    found: HostStates | None = ask(offload.host_states, ref, rank=rank)
    return found


def communicators(ref: RunRef, *, rank: int) -> list[FirstUse]:
    """The process groups of a rank's collectives, in order of their first one."""
    found: list[FirstUse] = ask(_communicators, ref, rank=rank)
    return found


def _communicators(run: Run, *, rank: int) -> list[FirstUse]:
    steps = run.table("steps", rank=rank).sort_by("start_ns")
    start, number = numbers(steps, "start_ns"), numbers(steps, "step")
    found = []
    for one in device_waterfall.communicators(run, rank=rank):
        row = int(np.searchsorted(start, one.first_ns, side="right")) - 1
        step, in_step_ns = (int(number[row]), one.first_ns - int(start[row])) if row >= 0 else (None, None)
        found.append((one, step, in_step_ns))
    return found


def grown(ref: RunRef, *, rank: int) -> list[Growth]:
    """Categories that grow step over step."""
    found: list[Growth] = ask(growth.growth, ref, rank=rank)
    return found


def kept_unsharded(ref: RunRef, *, rank: int) -> list[KeptUnsharded]:
    """Units that something keeps gathered."""
    found: list[KeptUnsharded] = ask(growth.kept_unsharded, ref, rank=rank)
    return found


def step_window(ref: RunRef, *, rank: int, step: int) -> TimeWindow:
    """One step, to be drawn."""
    found: TimeWindow = ask(time_window.step_window, ref, rank=rank, step=step)
    return found


def run_window(ref: RunRef, *, rank: int, num_panels: int) -> TimeWindow:
    """A whole recording, to be drawn beside others: together they send no more rows than one."""
    found: TimeWindow = ask(time_window.run_window, ref, rank=rank, max_rows=MAX_ROWS // num_panels)
    return found
