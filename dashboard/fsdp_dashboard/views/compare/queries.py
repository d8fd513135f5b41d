"""The doorway's part on two runs beside each other. Cached and guarded as data.py is."""

from fsdp_dashboard import data
from fsdp_dashboard.data import Damage, RunRef
from fsdp_profile.analysis.compare.peaks import ComparedRun as ComparedRun
from fsdp_profile.analysis.memory.step_ledger import StepLedger
from fsdp_profile.analysis.time.alignment import aligned_by_phase


def step_of(ref: RunRef, found: ComparedRun, *, step: int | None) -> StepLedger:
    """The ledger of a run's worst rank in a step, or in the step of its peak."""
    return data.step_ledger(ref, rank=found.peak.rank, step=found.peak.step if step is None else step)


def onto(step: StepLedger, reference: StepLedger, *, label: str) -> StepLedger:
    """A step with its phases where the reference's are."""
    with Damage(label):
        return aligned_by_phase(step, onto=reference)
