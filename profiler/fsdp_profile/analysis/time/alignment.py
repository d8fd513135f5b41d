"""Align one step with another by their phases, so that the same phases are at the same places.

[Note: Anchors] The start of the step, of its first forward, backward and optimizer phase, and its end are moved to
those of the reference; time between two of them is scaled linearly. A phase that one of the steps lacks is no anchor.
"""

import dataclasses
from typing import Final

import numpy as np

from fsdp_profile.analysis.memory.step_ledger import StepLedger
from fsdp_profile.analysis.spans.intervals import Ints
from fsdp_profile.analysis.spans.recorded import PhaseSpan
from fsdp_profile.core.schema import Phase

ANCHORS: Final = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def aligned_by_phase(step: StepLedger, *, onto: StepLedger) -> StepLedger:
    """The step with its times moved onto the reference's, bytes unchanged; see [Note: Anchors]."""
    mine, theirs = _begins(step), _begins(onto)
    shared = [phase for phase in ANCHORS if phase in mine and phase in theirs]
    old = [step.start_ns, *(mine[phase] for phase in shared), step.end_ns]
    new = [onto.start_ns, *(theirs[phase] for phase in shared), onto.end_ns]
    if sorted(old) != old or sorted(new) != new:
        return step

    def moved(t_ns: Ints) -> Ints:
        # From the step's begin: unix ns are too long for a float's digits.
        places = np.interp(t_ns - step.start_ns, np.array(old) - step.start_ns, np.array(new) - onto.start_ns)
        found: Ints = np.rint(places).astype(np.int64) + onto.start_ns
        return found

    bounds = moved(np.array([at for span in step.phases for at in (span.start_ns, span.end_ns)], np.int64))
    phases = tuple(
        PhaseSpan(phase=span.phase, start_ns=int(bounds[2 * i]), end_ns=int(bounds[2 * i + 1]))
        for i, span in enumerate(step.phases)
    )
    return dataclasses.replace(
        step,
        start_ns=onto.start_ns,
        end_ns=onto.end_ns,
        ledger=dataclasses.replace(step.ledger, t_ns=moved(step.ledger.t_ns)),
        phases=phases,
    )


def _begins(step: StepLedger) -> dict[Phase, int]:
    found: dict[Phase, int] = {}
    for span in step.phases:
        for phase in ANCHORS:
            if span.phase == phase.value:
                found.setdefault(phase, max(span.start_ns, step.start_ns))
    return found
