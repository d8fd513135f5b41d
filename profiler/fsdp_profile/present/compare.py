"""Runs side by side: the verdict, what changed by category, phase and unit, what a step costs, and the losses."""

from collections.abc import Sequence
from typing import Final

from fsdp_profile.analysis.compare.losses import Agreement
from fsdp_profile.analysis.compare.peaks import ComparedRun, Comparison, waterfall_text
from fsdp_profile.analysis.compare.replicated import ReplicatedEstimate
from fsdp_profile.analysis.compare.side_by_side import Row
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.core.schema import Strategy
from fsdp_profile.present.memory import TOTAL, categories_text, phase_text, step_text, unit_value
from fsdp_profile.present.values import Column, Sentence, Table, Unit, Value, column, name, say, strong, table

DIFFER: Final = "These runs differ in more than their strategy"
SENDS_NOTE: Final = (
    "medians of the steps after the first, slowest rank; sent: by one rank if every collective is a ring (estimate)"
)
UNITS_NOTE: Final = "parameters, gradients and their communication buffers, at the peak of each run"
NO_UNITS: Final = say(
    strong("Not recorded"), ": these runs have no units of the same names, or the names of their parameters were not "
    "recorded.",
)  # fmt: skip
NO_LOSSES: Final = say(
    "Losses are ", strong("not recorded"), " in both runs (", name("run --as"), " records them), or are of other ranks."
)  # fmt: skip
MAX_UNITS: Final = 8
"""Units listed in a short table: those that change most."""


def baseline_of(found: Comparison) -> ComparedRun:
    """The run that the others are compared against."""
    return next(c for c in found.runs if c.run is found.baseline or c.run == found.baseline)


def others_of(found: Comparison) -> list[ComparedRun]:
    """All runs but the baseline."""
    base = baseline_of(found)
    return [c for c in found.runs if c is not base]


def verdict(found: Comparison) -> Sentence:
    """What sharding changed; of several runs, what it changed in the one that needs least."""
    base, others = baseline_of(found), others_of(found)
    best = min(others, key=lambda c: c.peak.allocated_bytes)
    several = len(others) > 1
    if several and best.saved_bytes <= 0:
        needs = strong(bytes_text(base.peak.allocated_bytes))
        return say("No run needs less than ", _called(base, best, by_name=True), ": ", needs, " at its peak.")
    return _against(best, base, num_runs=len(found.runs))


def verdicts(found: Comparison) -> list[Sentence]:
    """Each run against the baseline, one sentence a run."""
    base = baseline_of(found)
    strategies = [c.run.manifest.strategy for c in found.runs]
    by_name = len(set(strategies)) < len(strategies)
    return [_against(c, base, by_name=by_name) for c in others_of(found)]


def _against(mine: ComparedRun, base: ComparedRun, *, num_runs: int = 2, by_name: bool = False) -> Sentence:
    several = num_runs > 2
    who, base_who = (
        _called(a, b, by_name=by_name or several) for a, b in ((mine, base), (base, mine))
    )  # fmt: skip
    needs, base_needs = (strong(bytes_text(c.peak.allocated_bytes)) for c in (mine, base))
    subject = say(f"Of {num_runs} runs ", who, " needs least, ", needs) if several else say(who, " needs ", needs)
    head = say(subject, " at its peak where ", base_who, " needs ", base_needs)
    amount, change = bytes_text(abs(mine.saved_bytes)), strong(ratio_text(abs(mine.reduction_ratio)))
    if mine.saved_bytes == 0:
        return say(head, ": no difference.")
    if mine.saved_bytes < 0:
        return say(head, ": ", change, f" more, not less ({amount} more per rank).")
    return say(head, ": ", change, f" less ({amount} saved per rank).")


def _called(mine: ComparedRun, other: ComparedRun, *, by_name: bool) -> Sentence:
    strategy = mine.run.manifest.strategy
    if strategy is Strategy.NONE:
        return say(name(mine.run.name))
    if by_name or strategy == other.run.manifest.strategy:
        return say(name(mine.run.name), f" ({strategy.label})")
    return say(strategy.label)


def changes(found: Comparison) -> list[Sentence]:
    """What changed at the peak, one sentence a run, and what the number of shards has to do with it."""
    return [*map(change, others_of(found)), *(say(line) for line in found.divided)]


def change(mine: ComparedRun) -> Sentence:
    """What changed against the baseline's peak, largest first."""
    return say(name(mine.run.name), f": {waterfall_text(mine)}.")


def change_text(mine: ComparedRun, base: ComparedRun) -> str:
    """How much more or less than the baseline, for a cell."""
    if mine is base:
        return "baseline"
    if mine.saved_bytes == 0:
        return "the same"
    return f"{ratio_text(abs(mine.reduction_ratio))} {'less' if mine.saved_bytes > 0 else 'MORE'}"


def peaks_table(found: Comparison, *, names: Sequence[str] | None = None) -> Table:
    """The peak of each run, and where it is."""
    base, runs = baseline_of(found), found.runs
    return table(
        "Peak of each run",
        [
            column("run", Unit.NAME, _names(found, names)),
            column("peak", Unit.BYTES, [c.peak.allocated_bytes for c in runs]),
            column("change", Unit.TEXT, [change_text(c, base) for c in runs], follows=True),
            column("rank", Unit.COUNT, [c.peak.rank for c in runs]),
            column("step", Unit.TEXT, [step_text(c.peak.step) for c in runs], follows=True),
            column("phase", Unit.TEXT, [phase_text(c.peak.phase) for c in runs], follows=True),
            column("active unit", Unit.NAME, [unit_value(c.peak.unit_name) for c in runs], follows=True),
        ],
        note="worst rank of each run, on one scale",
    )


def categories_table(found: Comparison, *, names: Sequence[str] | None = None) -> Table:
    """Bytes by category at the peak of each run, and the change against the baseline."""
    base = baseline_of(found)
    held = {c for one in found.runs for c in one.peak.by_category} | {Category.UNKNOWN}
    rows = [c for c in CATEGORIES if c in held]
    columns = [column("category", Unit.CATEGORY, [*rows, TOTAL])]
    for mine, label in _base_first(found, _names(found, names)):
        sizes = [*(mine.peak.by_category.get(c, 0) for c in rows), mine.peak.allocated_bytes]
        columns.append(column(label, Unit.BYTES, sizes, is_named=True))
        if mine is not base:
            deltas = [*(mine.delta_by_category.get(c, 0) for c in rows), -mine.saved_bytes]
            columns.append(column("change", Unit.BYTES_CHANGE, deltas, follows=True))
    note = f"worst rank of each run; change against {found.baseline.name}"
    return table("Peak by category", columns, note=note, num_totals=1, num_keys=2)


def phases_table(found: Comparison, *, names: Sequence[str] | None = None) -> Table:
    """The peak of each phase in every run."""
    labels = [phase_text(row.name) for row in found.phases]
    key = column("phase", Unit.TEXT, labels)
    note = f"worst rank of each run; change against {found.baseline.name}"
    return table("Peak by phase", [key, *_sizes(found, found.phases, _names(found, names))], note=note, num_keys=2)


def units_table(found: Comparison, *, names: Sequence[str] | None = None, max_rows: int | None = None) -> Table:
    """What each unit holds at the peak of every run; with `max_rows` the units that change most."""
    base = found.runs.index(baseline_of(found))

    def changes_by(row: Row) -> int:
        known = [size for size in row.sizes_bytes if size is not None]
        return max((abs(size - (row.sizes_bytes[base] or 0)) for size in known), default=0)

    largest = sorted(found.units, key=changes_by, reverse=True)[:max_rows]
    rows = [row for row in found.units if row in largest]
    left_out = len(found.units) - len(rows)
    more = f"; {left_out} units that change less are left out" if left_out else ""
    key = column("unit", Unit.NAME, [unit_text(row.name) for row in rows])
    return table(
        "Units at the peak", [key, *_sizes(found, rows, _names(found, names))], note=f"{UNITS_NOTE}{more}", num_keys=2
    )


def costs_table(found: Comparison, *, names: Sequence[str] | None = None) -> Table:
    """What a step of each run moves and how long it takes."""
    costs = [c.cost for c in found.runs]
    return table(
        "Cost of a step",
        [
            column("run", Unit.NAME, _names(found, names)),
            column("step", Unit.NS, [cost.step_ns for cost in costs]),
            column("collectives move", Unit.BYTES, [cost.size_bytes for cost in costs]),
            column("a rank sends", Unit.BYTES, [cost.wire_bytes for cost in costs]),
            column("collectives take", Unit.NS, [cost.communication_ns for cost in costs]),
            column("exposed", Unit.NS, [cost.exposed_ns for cost in costs]),
            column("exposed share of the step", Unit.RATIO, [cost.exposed_ratio for cost in costs], follows=True),
        ],
        note=SENDS_NOTE,
    )


def has_costs(found: Comparison) -> bool:
    """Whether times or traffic of a step were recorded in any of the runs."""
    return any(c.cost.step_ns is not None or c.cost.size_bytes is not None for c in found.runs)


def losses(found: Agreement) -> Sentence:
    """Whether a run trained as the baseline did."""
    worst = found.worst
    where = f"{worst.difference:.2g} ({worst.ratio:.1e} of the loss) in step {worst.step}"
    if not found.is_equal:
        return say("losses are ", strong("not equal to rounding"), f": they differ by up to {where}.")
    steps = f"{len(found.steps)} step{'s' if len(found.steps) != 1 else ''}"
    count = f" in all {found.num_losses} backward calls of {steps}"
    if worst.difference == 0:
        return say("losses are ", strong("equal"), f"{count}.")
    return say("losses are ", strong("equal to rounding"), f"{count}; the largest difference is {where}.")


def losses_of(mine: ComparedRun) -> Sentence:
    """The same with the name of the run, or that losses were not recorded."""
    return NO_LOSSES if mine.losses is None else say(name(mine.run.name), ": ", losses(mine.losses))


def losses_table(runs: Sequence[ComparedRun], *, baseline: str) -> Table:
    """The baseline's loss of each step, and the largest difference of each run over its ranks and micro-steps."""
    recorded = [(c.run.name, c.losses) for c in runs if c.losses is not None]
    steps = sorted({step.step: step.loss for _, mine in recorded for step in mine.steps}.items())
    columns = [
        column("step", Unit.COUNT, [step for step, _ in steps]),
        column("baseline's loss", Unit.LOSS, [loss for _, loss in steps]),
    ]
    for label, mine in recorded:
        by_step: dict[int, Value] = {step.step: step.difference for step in mine.steps}
        columns.append(
            column(label, Unit.DIFFERENCE, [by_step.get(step) for step, _ in steps], is_named=True, absent="")
        )
    return table(
        "Losses", columns, note=f"on which backward was called; largest difference from {baseline}", num_keys=2
    )


def estimate(found: ReplicatedEstimate, *, who: str, smaller_bytes: int) -> Sentence:
    """What a run that ran out of memory would need, by an estimate from one that did not."""
    saved = found.peak_bytes - smaller_bytes
    return say(
        f"{who} ran out of memory. ESTIMATE from ", name(found.source), f": {who} would need ",
        strong(bytes_text(found.peak_bytes)), " at its peak, ", name(found.source), " needs ",
        strong(bytes_text(smaller_bytes)), f": {ratio_text(saved / found.peak_bytes)} less.",
    )  # fmt: skip


def estimate_parts(found: ReplicatedEstimate) -> Sentence:
    """What the estimated peak is made of."""
    return say(f"Its estimated peak: {categories_text(found.by_category)}.")


def estimate_note(found: ReplicatedEstimate) -> str:
    """How the estimate was made."""
    return (
        f"Estimated from the run's own activations, its parameters, gradients and optimizer state times "
        f"{found.shards} shards, and DDP's buckets."
    )


def _names(found: Comparison, names: Sequence[str] | None) -> list[str]:
    return [c.run.name for c in found.runs] if names is None else list(names)


def _base_first(found: Comparison, names: Sequence[str]) -> list[tuple[ComparedRun, str]]:
    base = baseline_of(found)
    return sorted(zip(found.runs, names, strict=True), key=lambda pair: pair[0] is not base)


def _sizes(found: Comparison, rows: Sequence[Row], names: Sequence[str]) -> list[Column]:
    """The baseline's bytes, then those of every other run with their change."""
    base = found.runs.index(baseline_of(found))
    theirs = [row.sizes_bytes[base] for row in rows]
    columns = [column(names[base], Unit.BYTES, theirs, is_named=True, absent="-")]
    for number, label in enumerate(names):
        if number == base:
            continue
        sizes = [row.sizes_bytes[number] for row in rows]
        deltas = [None if a is None or b is None else a - b for a, b in zip(sizes, theirs, strict=True)]
        columns.append(column(label, Unit.BYTES, sizes, is_named=True, absent="-"))
        columns.append(column("change", Unit.BYTES_CHANGE, deltas, absent="", follows=True))
    return columns
