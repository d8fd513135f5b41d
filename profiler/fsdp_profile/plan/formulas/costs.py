"""Memory and traffic of a layout in closed form, with every formula as it was used.

All sizes are bytes of one rank; the world is even: nothing is padded. [Note: What formulas leave out] The allocator
(rounding, caching, fragmentation), CUDA's context, NCCL's buffers, workspaces, and temporaries of the optimizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.words import Word
from fsdp_profile.plan.formulas.activations import Checkpointing, Transformer, activation_bytes, logit_bytes
from fsdp_profile.plan.formulas.devices import Device
from fsdp_profile.plan.formulas.recipes import Recipe
from fsdp_profile.plan.formulas.strategies import FULLY_SHARDED, Layout, World

DEFAULT_DEPTH: Final = 2
"""Units gathered at once: the active one and the one prefetched."""


class Basis(Word):
    """What a row of a plan is based on."""

    FORMULA = "formula"
    SIMULATED = "simulated"
    CALIBRATED = "calibrated"
    MEASURED = "measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """What is trained."""

    numel: int
    trainable_numel: int | None = None
    """None: all of them."""
    unit_numel: int | None = None
    """Of the largest unit; None: not known."""
    transformer: Transformer | None = None
    """Sizes for the activations; None: not known."""

    def __post_init__(self) -> None:
        if self.numel < 1:
            raise UsageError(f"--params {self.numel}: give a number of parameters, 1 or more, such as 13e9")
        if self.trainable_numel is not None and not 0 <= self.trainable_numel <= self.numel:
            raise UsageError(f"--trainable {self.trainable_numel:,}: between 0 and the model's {self.numel:,}")
        if self.unit_numel is not None and not 1 <= self.unit_numel <= self.numel:
            raise UsageError(f"--largest-unit {self.unit_numel:,}: between 1 and the model's {self.numel:,}")

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return self.numel if self.trainable_numel is None else self.trainable_numel

    @property
    def largest_unit(self) -> int | None:
        """Of the largest unit; by layers, where only those are known."""
        if self.unit_numel is None and self.transformer is not None:
            return -(-self.numel // self.transformer.layers)
        return self.unit_numel


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What else decides the bytes."""

    depth: int = DEFAULT_DEPTH
    checkpointing: Checkpointing = Checkpointing.NONE
    bucket_view: bool = False
    """DDP's gradients are views into its buckets."""

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise UsageError(f"--depth {self.depth}: give the units gathered at once, 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One number of a row, and where it comes from."""

    name: str
    formula: str
    """With its letters."""
    numbers: str
    """With the numbers put in."""
    size_bytes: int | None
    """None: what it needs is not known."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRow:
    """What one rank needs under one layout. None: not known."""

    layout: Layout
    world_size: int
    param_bytes: int
    grad_bytes: int
    optimizer_bytes: int
    gathered_bytes: int | None
    """Parameters gathered at once; copies that autocast keeps."""
    reduced_bytes: int | None
    """Unreduced gradients: of one unit, or DDP's buckets."""
    activation_bytes: int | None
    traffic_bytes: int | None
    """Sent by one rank in one step, if each group is a ring."""
    peak_bytes: int | None
    """None where a part of it is not known, or was not measured."""
    basis: Basis
    error_ratio: float | None = None
    """Of the peak, from what was measured; None: no measurement."""
    terms: tuple[Term, ...] = ()
    by_category: dict[str, int] = field(default_factory=dict)
    """Of a peak that was simulated or calibrated."""
    remark: str = ""

    @property
    def states_bytes(self) -> int:
        """Parameters, gradients and optimizer states that stay."""
        return self.param_bytes + self.grad_bytes + self.optimizer_bytes

    @property
    def needed_bytes(self) -> int:
        """The peak; what of it is known, where not all is."""
        known = (self.gathered_bytes, self.reduced_bytes, self.activation_bytes)
        return self.peak_bytes if self.peak_bytes is not None else self.states_bytes + sum(k or 0 for k in known)

    def fits(self, device: Device) -> bool | None:
        """Whether a device holds it; None when what is known fits and something is not known."""
        if self.needed_bytes > device.total_bytes:
            return False
        return True if self.peak_bytes is not None else None


def plan_rows(
    model: ModelSize, recipe: Recipe, world: World, *, layouts: Sequence[Layout], options: Options | None = None
) -> list[PlanRow]:
    """One row per layout, in the order given."""
    return [plan_row(model, recipe, world, layout, options=options) for layout in layouts]


def plan_row(
    model: ModelSize, recipe: Recipe, world: World, layout: Layout, *, options: Options | None = None
) -> PlanRow:
    """What one rank needs under a layout."""
    chosen = options or Options()
    shards = world.shards(layout)
    states = _states(model, recipe, layout, shards)
    gathered = _gathered(model, recipe, layout, chosen)
    reduced = _reduced(model, recipe, layout, chosen)
    activations = _activations(model, chosen)
    traffic = _traffic(model, recipe, layout, world)
    parts = [*(term.size_bytes for term in states), gathered.size_bytes, reduced.size_bytes, activations.size_bytes]
    known = [part for part in parts if part is not None]
    param, grad, optimizer = (term.size_bytes or 0 for term in states)
    return PlanRow(
        layout=layout,
        world_size=world.size,
        param_bytes=param,
        grad_bytes=grad,
        optimizer_bytes=optimizer,
        gathered_bytes=gathered.size_bytes,
        reduced_bytes=reduced.size_bytes,
        activation_bytes=activations.size_bytes,
        traffic_bytes=traffic.size_bytes,
        peak_bytes=sum(known) if len(known) == len(parts) else None,
        basis=Basis.FORMULA,
        terms=(*states, gathered, reduced, activations, traffic),
    )


def _states(model: ModelSize, recipe: Recipe, layout: Layout, shards: int) -> tuple[Term, Term, Term]:
    total, trained = model.numel, model.trained
    frozen = total - trained
    frozen_bytes = recipe.param_bytes if recipe.frozen_bytes is None else recipe.frozen_bytes
    params_over = shards if layout in FULLY_SHARDED else 1
    grads_over = shards if layout in (*FULLY_SHARDED, Layout.ZERO2) else 1
    p, g, k = recipe.param_bytes, recipe.grad_bytes, recipe.optimizer_bytes
    held = f"({_n(p)} x {trained:,} + {frozen_bytes:.4g} x {frozen:,})" if frozen else f"{_n(p)} x {total:,}"
    return (
        Term(
            name="parameters",
            formula=("(p T + f (P - T))" if frozen else "p P") + _over(params_over),
            numbers=held + _divided(params_over),
            size_bytes=_whole((p * trained + frozen_bytes * frozen) / params_over),
            source=recipe.source,
        ),
        Term(
            name="gradients",
            formula="g T" + _over(grads_over),
            numbers=f"{_n(g)} x {trained:,}" + _divided(grads_over),
            size_bytes=_whole(g * trained / grads_over),
            source=recipe.source,
        ),
        Term(
            name="optimizer",
            formula="k T" + _over(shards),
            numbers=f"{k:.6g} x {trained:,}" + _divided(shards),
            size_bytes=_whole(k * trained / shards),
            source=", ".join(f"{name} {_n(size)}" for name, size in recipe.optimizer) or "no states",
        ),
    )


def _gathered(model: ModelSize, recipe: Recipe, layout: Layout, options: Options) -> Term:
    c, unit = recipe.compute_bytes, model.largest_unit
    base: dict[str, Any] = {"name": "gathered"}
    if layout is Layout.FSDP_NO_RESHARD:
        return Term(
            **base, formula="c P", numbers=f"{_n(c)} x {model.numel:,}", size_bytes=_whole(c * model.numel),
            source="every unit stays gathered from its forward to the end of its backward",
        )  # fmt: skip
    if layout not in FULLY_SHARDED:
        copies = recipe.cast_bytes
        return Term(
            **base, formula="a P" if copies else "0", numbers=f"{_n(copies)} x {model.numel:,}",
            size_bytes=_whole(copies * model.numel),
            source="autocast's copies, alive from forward to backward" if copies else "parameters are whole",
        )  # fmt: skip
    numbers = "the largest unit is not known"
    if unit is not None:
        numbers = f"{_n(c)} x min({options.depth} x {unit:,}, {model.numel:,})"
    return Term(
        **base, formula="c min(d U, P)", numbers=numbers,
        size_bytes=None if unit is None else _whole(c * min(options.depth * unit, model.numel)),
        source="the active unit and those prefetched; parameters outside the blocks stay gathered too",
    )  # fmt: skip


def _reduced(model: ModelSize, recipe: Recipe, layout: Layout, options: Options) -> Term:
    if layout in (Layout.DDP, Layout.ZERO1):
        b = 0 if options.bucket_view else recipe.bucket_bytes
        return Term(
            name="buckets", formula="b T" if b else "0", numbers=f"{_n(b)} x {model.trained:,}",
            size_bytes=_whole(b * model.trained),
            source="DDP copies gradients into buckets" if b else "gradients are reduced where they are",
        )  # fmt: skip
    unit = model.largest_unit
    each = recipe.compute_bytes + recipe.reduce_bytes
    share = model.trained / model.numel
    return Term(
        name="unreduced", formula="(c + r) U",
        numbers=f"{_n(each)} x {unit:,}" if unit is not None else "the largest unit is not known",
        size_bytes=None if unit is None else _whole(each * unit * share),
        source="gradients of one unit, and the buffer in which they are reduced",
    )  # fmt: skip


def _activations(model: ModelSize, options: Options) -> Term:
    sizes = model.transformer
    name, source = "activations", "Korthikanti et al. (2022); logits in bf16, fp32, and the gradient of the loss"
    if sizes is None:
        return Term(
            name=name, formula="34 s b h L", numbers="layers, hidden and sequence are not known", size_bytes=None,
            source=source,
        )  # fmt: skip
    logits = logit_bytes(sizes)
    is_full = options.checkpointing is Checkpointing.FULL
    formula = "2 s b h L + 34 s b h" if is_full else "34 s b h L"
    formula += "" if sizes.is_fused or options.checkpointing is not Checkpointing.NONE else " + 5 a s^2 b L"
    kept = activation_bytes(sizes, options.checkpointing)
    numbers = f"s {sizes.seq:,} b {sizes.batch:,} h {sizes.hidden:,} L {sizes.layers:,}"
    if logits is not None:
        formula, numbers = f"{formula} + 10 s b V", f"{numbers} V {sizes.vocab:,}"
    return Term(name=name, formula=formula, numbers=numbers, size_bytes=kept + (logits or 0), source=source)


def _traffic(model: ModelSize, recipe: Recipe, layout: Layout, world: World) -> Term:
    """Bytes that one rank sends in a step: a ring moves (n - 1) / n of an array for each half of an all-reduce."""
    n, shards = world.size, world.shards(layout)
    c, r = recipe.compute_bytes, recipe.reduce_bytes
    total, trained = model.numel, model.trained
    share = (shards - 1) / shards
    match layout:
        case Layout.DDP:
            formula, sent = "2 r T (N - 1) / N", 2 * r * trained * (n - 1) / n
        case Layout.ZERO1 | Layout.ZERO2:
            formula, sent = "(r T + c T) (N - 1) / N", (r + c) * trained * (n - 1) / n
        case Layout.FSDP_NO_RESHARD:
            formula, sent = "(c P + r T) (N - 1) / N", (c * total + r * trained) * share
        case Layout.FSDP:
            formula, sent = "(2 c P + r T) (N - 1) / N", (2 * c * total + r * trained) * share
        case Layout.HSDP:
            m = world.replicas
            formula = "(2 c P + r T) (S - 1) / S + 2 r T (M - 1) / (S M)"
            sent = (2 * c * total + r * trained) * share + 2 * r * trained / shards * (m - 1) / m
    numbers = f"P {total:,} T {trained:,} N {n} S {shards} c {_n(c)} r {_n(r)}"
    return Term(
        name="traffic", formula=formula, numbers=numbers, size_bytes=_whole(sent),
        source="ring collectives; ZeRO, section 7: all-gathers in forward and backward, one reduce-scatter",
    )  # fmt: skip


def _whole(size: float) -> int:
    return round(size)


def _n(size: float) -> str:
    return f"{size:.6g}"


def _over(ranks: int) -> str:
    return " / S" if ranks > 1 else ""


def _divided(ranks: int) -> str:
    return f" / {ranks}" if ranks > 1 else ""
