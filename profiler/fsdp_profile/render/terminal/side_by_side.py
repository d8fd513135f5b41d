"""Tables of runs beside each other: by phase, by unit, what a step costs, and whether the losses agree."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.compare.losses import Agreement
from fsdp_profile.analysis.compare.peaks import ComparedRun, Comparison, signed
from fsdp_profile.analysis.compare.side_by_side import Row
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.palette import WARNING
from fsdp_profile.render.terminal.parts import Cell, Field, Grid, Name, heading, lines, note, shortened

HEADER_CELLS: Final = 14
"""A run's name above a column of bytes is shortened to this."""
MAX_UNITS: Final = 8
"""Units shown: those that change most."""


def phases_section(found: Comparison) -> RenderableType | None:
    """The peak of each phase in every run."""
    if not found.phases:
        return None
    title = heading("Peak by phase", f"worst rank of each run; change against {found.baseline.name}")
    return Group(title, _table(found, found.phases, "phase", [row.name for row in found.phases]))


def units_section(found: Comparison) -> RenderableType | None:
    """What each unit keeps and gathers at every run's peak; the units that change most."""
    base = [c.run for c in found.runs].index(found.baseline)

    def change(row: Row) -> int:
        known = [size for size in row.sizes_bytes if size is not None]
        return max((abs(size - (row.sizes_bytes[base] or 0)) for size in known), default=0)

    largest = sorted(found.units, key=change, reverse=True)[:MAX_UNITS]
    rows = [row for row in found.units if row in largest]
    if not rows:
        return None
    left_out = len(found.units) - len(rows)
    return Group(
        heading("Units at the peak", "parameters, gradients and their buffers"),
        _table(found, rows, "unit", [Name(unit_text(row.name)) for row in rows]),
        *([note(f"and {left_out} units that change less")] if left_out else []),
    )


def run_names(runs: Sequence[ComparedRun]) -> list[Cell]:
    """A column of the runs' names, told apart where they are shortened."""
    names = tuple(c.run.name for c in runs)
    return [Name(name, among=names) for name in names]


def cost_section(runs: Sequence[ComparedRun]) -> RenderableType | None:
    """What a step of each run moves and how long it takes."""
    costs = [c.cost for c in runs]
    if all(cost.step_ns is None and cost.size_bytes is None for cost in costs):
        return None
    fields = [
        Field(header="step", cells=[ns_text(cost.step_ns) for cost in costs]),
        Field(header="moves", cells=[bytes_text(cost.size_bytes) for cost in costs]),
        Field(header="sends (estimate)", cells=[bytes_text(cost.wire_bytes) for cost in costs]),
        Field(header="collectives", cells=[ns_text(cost.communication_ns) for cost in costs]),
        Field(header="exposed", cells=[ns_text(cost.exposed_ns) for cost in costs]),
        Field(header="of step", cells=[_percent(cost.exposed_ratio) for cost in costs]),
    ]
    key = [Field(header="run", cells=run_names(runs), justify="left")]
    remark = "median of the steps after the first, slowest rank"
    return Group(heading("Per step", remark), Grid(key=key, groups=[fields]))


def losses_section(found: Comparison) -> RenderableType | None:
    """Whether every run trained as the baseline did; None where losses were not recorded."""
    told = [(c.run.name, c.losses) for c in found.runs if c.losses is not None]
    if not told:
        return None
    title = heading("Losses", f"what backward was called on, against {found.baseline.name}")
    unequal = [f"{name}: {_agreement(mine)}" for name, mine in told if not mine.is_equal]
    equal = [f"{name}: {_agreement(mine)}" for name, mine in told if mine.is_equal]
    parts = [lines(texts, style=style) for texts, style in ((equal, ""), (unequal, WARNING)) if texts]
    return Group(title, *parts, _by_step(told))


def _agreement(found: Agreement) -> str:
    worst = found.worst
    where = f"largest difference {worst.difference:.2g} ({worst.ratio:.1e} of the loss) in step {worst.step}"
    if not found.is_equal:
        return f"NOT equal to rounding: {where}"
    if worst.difference == 0:
        return f"equal in all {found.num_losses} losses of {_steps(found)}"
    return f"equal to rounding in {found.num_losses} losses of {_steps(found)}; {where}"


def _steps(found: Agreement) -> str:
    return f"{len(found.steps)} step{'s' if len(found.steps) != 1 else ''}"


def _by_step(told: Sequence[tuple[str, Agreement]]) -> Grid:
    steps = sorted({step.step: step.loss for _, mine in told for step in mine.steps}.items())
    key = [
        Field(header="step", cells=[str(step) for step, _ in steps]),
        Field(header="loss", cells=[f"{loss:.6f}" for _, loss in steps]),
    ]
    groups, names = [], [plain(name) for name, _ in told]
    for name, mine in told:
        by_step = {step.step: f"{step.difference:.1e}" if step.difference else "0" for step in mine.steps}
        cells: list[Cell] = [by_step.get(step, "") for step, _ in steps]
        groups.append(
            [Field(header=f"max diff {shortened(plain(name), cells=HEADER_CELLS, among=names)}", cells=cells)]
        )
    return Grid(key=key, groups=groups)


def _table(found: Comparison, rows: Sequence[Row], what: str, names: Sequence[Cell]) -> Grid:
    """One column for the baseline, two for every other run."""
    base = [c.run for c in found.runs].index(found.baseline)
    key = [Field(header=what, cells=list(names), justify="left"), _sizes(found, rows, base)]
    groups = [[_sizes(found, rows, i), _changes(rows, i, base)] for i in range(len(found.runs)) if i != base]
    return Grid(key=key, groups=groups)


def _sizes(found: Comparison, rows: Sequence[Row], which: int) -> Field:
    names = [plain(c.run.name) for c in found.runs]
    header = shortened(names[which], cells=HEADER_CELLS, among=names)
    sizes = [row.sizes_bytes[which] for row in rows]
    return Field(header=header, cells=["-" if size is None else bytes_text(size) for size in sizes])


def _changes(rows: Sequence[Row], which: int, base: int) -> Field:
    pairs = [(row.sizes_bytes[which], row.sizes_bytes[base]) for row in rows]
    return Field(header="change", cells=["" if a is None or b is None else _signed(a - b) for a, b in pairs])


def _signed(delta_bytes: int) -> str:
    return signed(delta_bytes) if delta_bytes else "="


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else ratio_text(ratio)
