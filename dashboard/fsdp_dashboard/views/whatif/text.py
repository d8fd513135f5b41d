"""Sentences of the What-if page."""

from fsdp_dashboard.views.whatif.queries import RECIPES, SHAPES, Choice, Device, PlanRow, fits_text
from fsdp_profile.plan.formulas.costs import Basis

FROM_RUN = (
    "The first bar was measured; the others are the same ledger with what the choice changes. Another number of ranks "
    "or batch is nearly exact; of another strategy the units' transient is modelled. Not in it: CUDA context, NCCL "
    "buffers, allocator rounding. The link in the address bar shows the same."
)
_LEFT_OUT = (
    "Not in it: CUDA context, NCCL buffers, allocator rounding and fragmentation, workspaces. The link in the address "
    "bar shows the same."
)


def of_formulas(choice: Choice) -> str:
    """What was calculated, and what is not in it."""
    shape, recipe = SHAPES[choice.shape], RECIPES[choice.recipe]
    trained = "" if recipe.frozen_bytes is None else ", 1 % of the parameters trained"
    return (
        f"Estimates from formulas: {shape.layers} layers of width {shape.hidden:,}, {recipe.what}{trained}; "
        f"activations by 34 s b h L and the logits. {_LEFT_OUT}"
    )


def remark(row: PlanRow, device: Device | None) -> str:
    """Behind a bar's title: whether it was measured, whether it fits."""
    words = "measured" if row.basis is Basis.MEASURED else ""
    return ", ".join(part for part in (words, fits_text(row, device)) if part)
