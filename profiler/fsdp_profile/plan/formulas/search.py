"""The smallest number of ranks and the largest batch that fit a device, each with what the next one lacks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.plan.formulas.costs import ModelSize, Options, PlanRow, plan_row
from fsdp_profile.plan.formulas.devices import Device
from fsdp_profile.plan.formulas.recipes import Recipe
from fsdp_profile.plan.formulas.strategies import Layout, World

WORLD_SIZES: Final = (*range(1, 9), *range(16, 129, 8), *range(256, 4097, 128))
"""Tried in order: every number up to eight, then whole nodes of eight, from 256 on 16 nodes at a time."""
MAX_BATCH: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The answer of a search under one layout."""

    layout: Layout
    device: Device
    row: PlanRow | None
    """The plan that fits; None: none of those tried does."""
    batch: int | None
    """Sequences of a micro-batch, where that was searched for."""
    reason: str
    """Why not the number of ranks that was tried before it, or one more sequence."""


def fewest_ranks(
    model: ModelSize, recipe: Recipe, device: Device, *, layouts: Sequence[Layout], options: Options, replicas: int
) -> list[Found]:
    """For each layout the smallest world size that fits the device."""
    return [_fewest(model, recipe, device, layout, options, replicas) for layout in layouts]


def largest_batch(
    model: ModelSize, recipe: Recipe, device: Device, *, world: World, layouts: Sequence[Layout], options: Options
) -> list[Found]:
    """For each layout the largest micro-batch that fits the device.

    Raises:
        UsageError: the sizes of the model's activations are not known.
    """
    if model.transformer is None:
        raise UsageError("--search batch: the activations are not known; give --layers, --hidden and --seq")
    return [_largest(model, recipe, device, world, layout, options) for layout in layouts]


def _fewest(model: ModelSize, recipe: Recipe, device: Device, layout: Layout, options: Options, replicas: int) -> Found:
    before: PlanRow | None = None
    for size in WORLD_SIZES:
        world = World(size=size, replicas=replicas)
        if layout is Layout.HSDP and not world.has_hsdp:
            continue
        row = plan_row(model, recipe, world, layout, options=options)
        if row.needed_bytes <= device.total_bytes:
            why = f"{_ranks(before.world_size)} would need {_needs(before)}" if before else "one rank is enough"
            return Found(layout=layout, device=device, row=row, batch=None, reason=why)
        before = row
    assert before is not None
    why = f"even on {_ranks(before.world_size)} it needs {_needs(before, device)}"
    return Found(layout=layout, device=device, row=None, batch=None, reason=why)


def _largest(model: ModelSize, recipe: Recipe, device: Device, world: World, layout: Layout, options: Options) -> Found:
    sizes = model.transformer
    assert sizes is not None

    def row_of(batch: int) -> PlanRow:
        larger = replace(model, transformer=replace(sizes, batch=batch))
        return plan_row(larger, recipe, world, layout, options=options)

    batch = _last_that(lambda b: row_of(b).needed_bytes <= device.total_bytes)
    if batch == 0:
        why = f"one sequence needs {_needs(row_of(1), device)}"
        return Found(layout=layout, device=device, row=None, batch=0, reason=why)
    why = f"{batch + 1} would need {_needs(row_of(batch + 1))}"
    return Found(layout=layout, device=device, row=row_of(batch), batch=batch, reason=why)


def _last_that(holds: Callable[[int], bool]) -> int:
    """The largest number from 0 on for which it holds; it holds up to some number and never after."""
    low, high = 0, 1
    while high < MAX_BATCH and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _needs(row: PlanRow, device: Device | None = None) -> str:
    """What is needed, of how much, and the largest part of it."""
    parts = {
        "parameters": row.param_bytes, "gradients": row.grad_bytes, "optimizer states": row.optimizer_bytes,
        "gathered parameters": row.gathered_bytes or 0, "unreduced gradients": row.reduced_bytes or 0,
        "activations": row.activation_bytes or 0,
    }  # fmt: skip
    largest = max(parts, key=lambda name: parts[name])
    of = "" if device is None else f" of {bytes_text(device.total_bytes)}"
    return f"{bytes_text(row.needed_bytes)}{of}, most of it {largest} ({bytes_text(parts[largest])})"


def _ranks(number: int) -> str:
    return f"{number:,} rank{'s' if number != 1 else ''}"
