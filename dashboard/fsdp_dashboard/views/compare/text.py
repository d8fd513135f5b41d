"""Sentences of the Compare page, as Markdown."""

from fsdp_dashboard.text import code
from fsdp_profile.analysis.compare.peaks import ComparedRun, waterfall_text

ALIGNED_BY_PHASE = (
    "Phases of the second run are stretched onto the baseline's: forward, backward and optimizer begin at the same "
    "place. Bytes are unchanged."
)
TOO_FEW = "Choose two runs or more in the sidebar; those without allocator events do not count."
UNITS = "Parameters, gradients and the buffers they travel in, at each run's own peak."
NO_UNITS = "no units of the same names in these runs, or parameters whose names were not recorded"
SENDS = "Sent by a rank if every call is a ring; times are the slowest rank's, of the steps after the first."


def change(mine: ComparedRun) -> str:
    """The change of the peak in words, largest first."""
    return f"{code(mine.run.name)}: {waterfall_text(mine)}."


def losses(mine: ComparedRun) -> str:
    """Whether it trained as the baseline did."""
    found = mine.losses
    if found is None:
        return "Losses: **not recorded** in both runs (`run --as` records them), or of other ranks."
    worst = found.worst
    if not found.is_equal:
        return (
            f"Losses are **not equal to rounding**: they differ by up to {worst.difference:.2g} "
            f"({worst.ratio:.1e} of the loss) in step {worst.step}."
        )
    what = "equal" if worst.difference == 0 else f"equal to rounding (largest difference {worst.difference:.2g})"
    return f"Losses are **{what}** in all {found.num_losses} backwards of {len(found.steps)} steps."
