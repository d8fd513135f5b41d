"""The doorway's part on plans: formulas of well-known sizes, and predictions from a measured run."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.plan import calibrate
from fsdp_profile.plan.calibrate import Target
from fsdp_profile.plan.formulas.activations import Checkpointing, Transformer
from fsdp_profile.plan.formulas.costs import ModelSize, Options, PlanRow, plan_rows
from fsdp_profile.plan.formulas.devices import DEVICES, Device
from fsdp_profile.plan.formulas.recipes import DEFAULT_RECIPE, RECIPES, Recipe
from fsdp_profile.plan.formulas.strategies import DEFAULT_REPLICAS, LAYOUTS, SIMULATED, Layout, World
from fsdp_profile.plan.measured import world_of

__all__ = [
    "DEFAULT_RECIPE", "DEVICES", "LAYOUTS", "RECIPES", "SHAPES", "SIMULATED", "Choice", "Device", "Layout", "PlanRow",
    "Recipe", "Shape", "categories_of", "formula_rows", "measured_row", "predicted_rows", "recorded_ranks",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A transformer of the GPT-3 and OPT family."""

    numel: int
    layers: int
    hidden: int


SHAPES: Final = MappingProxyType(
    {
        "125M": Shape(numel=125 * 10**6, layers=12, hidden=768),
        "350M": Shape(numel=350 * 10**6, layers=24, hidden=1024),
        "1.3B": Shape(numel=1_300 * 10**6, layers=24, hidden=2048),
        "2.7B": Shape(numel=2_700 * 10**6, layers=32, hidden=2560),
        "6.7B": Shape(numel=6_700 * 10**6, layers=32, hidden=4096),
        "13B": Shape(numel=13 * 10**9, layers=40, hidden=5120),
        "30B": Shape(numel=30 * 10**9, layers=48, hidden=7168),
        "66B": Shape(numel=66 * 10**9, layers=64, hidden=9216),
        "175B": Shape(numel=175 * 10**9, layers=96, hidden=12_288),
    }
)
_VOCAB: Final = 50_272  # of OPT


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the controls say."""

    shape: str
    world_size: int
    recipe: str
    layouts: tuple[Layout, ...]
    batch: int
    seq: int
    checkpointed: bool

    @property
    def world(self) -> World:
        """The ranks; HSDP as two replicas."""
        return World(size=self.world_size, replicas=DEFAULT_REPLICAS)


def formula_rows(choice: Choice) -> list[PlanRow]:
    """One row for each chosen layout that the ranks can be divided into."""
    shape = SHAPES[choice.shape]
    sizes = Transformer(layers=shape.layers, hidden=shape.hidden, seq=choice.seq, batch=choice.batch, vocab=_VOCAB)
    recipe = RECIPES[choice.recipe]
    trained = None if recipe.frozen_bytes is None else shape.numel // 100
    model = ModelSize(numel=shape.numel, transformer=sizes, trainable_numel=trained)
    options = Options(checkpointing=_checkpointing(choice.checkpointed))
    world = choice.world
    layouts = [layout for layout in choice.layouts if layout is not Layout.HSDP or world.has_hsdp]
    return plan_rows(model, recipe, world, layouts=layouts, options=options)


def recorded_ranks(ref: RunRef) -> int:
    """Ranks of a run."""
    found: World = ask(world_of, ref)
    return found.size


def measured_row(ref: RunRef) -> PlanRow:
    """What the run itself needed."""
    found: PlanRow = ask(calibrate.measured_row, ref)
    return found


def predicted_rows(
    ref: RunRef, *, layouts: Sequence[Layout], world_size: int, batch_percent: int, seq_percent: int, checkpointed: bool
) -> list[PlanRow]:
    """What the run says about the layouts; ratios in percent of what was recorded."""
    found: list[PlanRow] = ask(
        _predicted, ref, world_size=world_size, batch_percent=batch_percent, seq_percent=seq_percent,
        checkpointed=int(checkpointed),
    )  # fmt: skip
    return [row for row in found if row.layout in layouts]


def _predicted(run: Run, *, world_size: int, batch_percent: int, seq_percent: int, checkpointed: int) -> list[PlanRow]:
    world = World(size=world_size, replicas=DEFAULT_REPLICAS)
    targets = [
        Target(
            layout=layout, world=world, batch_ratio=batch_percent / 100, seq_ratio=seq_percent / 100,
            checkpointing=_checkpointing(bool(checkpointed)),
        )
        for layout in SIMULATED
        if layout is not Layout.HSDP or world.has_hsdp
    ]  # fmt: skip
    return calibrate.predict(run, targets)


def _checkpointing(is_full: bool) -> Checkpointing:
    return Checkpointing.FULL if is_full else Checkpointing.NONE


def categories_of(row: PlanRow) -> dict[Category, int]:
    """A row's bytes by category; of formulas by what they stand for."""
    if row.by_category:
        return {Category(name): size for name, size in row.by_category.items()}
    on_its_way = Category.BUCKET if row.layout in (Layout.DDP, Layout.ZERO1) else Category.UNSHARDED_GRAD
    parts = {
        Category.PARAM: row.param_bytes,
        Category.OPTIMIZER_STATE: row.optimizer_bytes,
        Category.GRAD: row.grad_bytes,
        Category.ACTIVATION: row.activation_bytes,
        Category.UNSHARDED_PARAM: row.gathered_bytes,
        on_its_way: row.reduced_bytes,
    }
    return {category: size for category, size in parts.items() if size}
