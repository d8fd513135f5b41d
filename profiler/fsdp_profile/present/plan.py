"""Plans: what one rank needs under each strategy, whether it fits, and how that was calculated."""

from collections.abc import Mapping, Sequence
from typing import Final

from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, count_text, decimal_text, ratio_text
from fsdp_profile.plan.formulas.costs import Basis, ModelSize, PlanRow
from fsdp_profile.plan.formulas.devices import TIGHT_RATIO, Device
from fsdp_profile.plan.formulas.recipes import Recipe
from fsdp_profile.plan.formulas.search import Found
from fsdp_profile.present.memory import TOTAL
from fsdp_profile.present.values import Column, Fact, Sentence, Table, Tone, Unit, column, say, table

NOT_KNOWN: Final = "?"
LETTERS: Final = (
    "P parameters, T trained; p g k c r bytes of a parameter, gradient, optimizer state, gathered parameter, unreduced "
    "gradient; N ranks, S shards, M replicas; U largest unit, d units at once; s b h L V sequence, batch, width, "
    "layers, vocabulary"
)
LEFT_OUT: Final = (
    "States: parameters, gradients and optimizer state. "
    "Not included: CUDA context, NCCL buffers, allocator rounding and fragmentation, workspaces. "
    f"Tight: more than {ratio_text(TIGHT_RATIO, digits=0)} of the device; maybe: not all of it is known."
)
_TITLES: Final = {
    Basis.FORMULA: "an estimate from formulas",
    Basis.SIMULATED: "an estimate from a simulated step",
    Basis.CALIBRATED: "an estimate calibrated by a measured run",
    Basis.MEASURED: "measured",
}


def formula_title(model: ModelSize, recipe: Recipe, world_sizes: Sequence[int]) -> str:
    """What is planned, in one line."""
    ranks = ", ".join(map(str, world_sizes))
    trained = "" if model.trainable_numel is None else f" ({count_text(model.trained)} trained)"
    plural = "s" if list(world_sizes) != [1] else ""
    return f"{count_text(model.numel)} parameters{trained}, {recipe.name}, {ranks} rank{plural}"


def plan_table(rows: Sequence[PlanRow], devices: Sequence[Device]) -> Table:
    """The bytes of one rank under each strategy, and whether each device holds them."""
    keys = [column("strategy", Unit.TEXT, [row.layout.label for row in rows])]
    if len({row.world_size for row in rows}) > 1:
        keys.append(column("ranks", Unit.COUNT, [row.world_size for row in rows]))
    bases = list(dict.fromkeys(row.basis for row in rows))
    if len(bases) > 1:
        keys.append(column("basis", Unit.TEXT, [row.basis.label for row in rows]))
    columns = [
        _sizes("parameters", [row.param_bytes for row in rows]),
        _sizes("gradients", [row.grad_bytes for row in rows], follows=True),
        _sizes("optimizer state", [row.optimizer_bytes for row in rows], follows=True),
        _sizes("states", [row.states_bytes for row in rows]),
        column("in GB", Unit.COUNT, [decimal_text(row.states_bytes) for row in rows], follows=True),
        _sizes("gathered parameters", [row.gathered_bytes for row in rows]),
        _sizes("unreduced gradients", [row.reduced_bytes for row in rows], follows=True),
        _sizes("activations", [row.activation_bytes for row in rows], follows=True),
        column("peak", Unit.COUNT, [peak_text(row) for row in rows]),
    ]
    if any(row.error_ratio is not None for row in rows):
        errors = [None if row.error_ratio is None else f"±{ratio_text(row.error_ratio)}" for row in rows]
        columns.append(column("error", Unit.COUNT, errors, absent=NOT_KNOWN))
    if any(row.traffic_bytes is not None for row in rows):
        columns.append(_sizes("sent per step", [row.traffic_bytes for row in rows]))
    columns += [_fit_column(rows, device) for device in devices]
    note = "; ".join(_TITLES[basis] for basis in bases)
    return table("Bytes of one rank", [*keys, *columns], note=note, num_keys=len(keys))


def _sizes(label: str, sizes: Sequence[int | None], *, follows: bool = False) -> Column:
    return column(label, Unit.BYTES, sizes, absent=NOT_KNOWN, follows=follows)


def peak_text(row: PlanRow) -> str:
    """The peak, or more than what is known of it."""
    return bytes_text(row.peak_bytes) if row.peak_bytes is not None else f"> {bytes_text(row.needed_bytes)}"


def fit(row: PlanRow, device: Device) -> tuple[str, Tone]:
    """Whether a device holds a row, with its share of the device."""
    fits, share = row.fits(device), row.needed_bytes / device.total_bytes
    if fits is False:
        return f"no ({share:.2f}x)", Tone.FAILURE
    text = ratio_text(share, digits=0) if share >= 0.01 else "<1 %"
    if share > TIGHT_RATIO:
        return f"tight ({text})", Tone.WARNING
    return f"{'fits' if fits else 'maybe'} ({text})", Tone.PLAIN


def _fit_column(rows: Sequence[PlanRow], device: Device) -> Column:
    found = [fit(row, device) for row in rows]
    return Column(
        label=device.title,
        unit=Unit.TEXT,
        values=tuple(text for text, _ in found),
        tones=tuple(tone for _, tone in found),
    )


def row_names(rows: Sequence[PlanRow]) -> list[str]:
    """The strategy; with its ranks, or how it is known, where two rows share a strategy."""
    several = len({row.world_size for row in rows}) > 1
    names = []
    for row in rows:
        bases = {other.basis for other in rows if other.layout is row.layout}
        words = [row.layout.label, f"x{row.world_size}" if several else "", row.basis.label if len(bases) > 1 else ""]
        names.append(" ".join(filter(None, words)))
    return names


def categories_of(row: PlanRow) -> dict[Category, int]:
    """The bytes of a peak that was simulated or calibrated, by category."""
    return {Category(code): size for code, size in row.by_category.items()}


def peaks_table(rows: Sequence[PlanRow]) -> Table:
    """The peak of each row."""
    return table(
        "What the peak is made of",
        [
            column("strategy", Unit.NAME, row_names(rows)),
            column("peak", Unit.BYTES, [row.peak_bytes for row in rows]),
        ],
        note="all on one scale",
    )


def peak_categories_table(rows: Sequence[PlanRow]) -> Table:
    """The peaks by category, a column for each row."""
    held: list[Mapping[Category, int]] = [categories_of(row) for row in rows]
    categories = [c for c in CATEGORIES if any(by.get(c) for by in held)]
    columns = [column("category", Unit.CATEGORY, [*categories, TOTAL])]
    columns += [
        column(label, Unit.BYTES, [*(by.get(c, 0) for c in categories), row.peak_bytes])
        for label, by, row in zip(row_names(rows), held, rows, strict=True)
    ]
    return table("", columns, num_totals=1)


def remarks(rows: Sequence[PlanRow]) -> list[Sentence]:
    """What is to be said about single rows."""
    return [say(f"{label}: {row.remark}") for label, row in zip(row_names(rows), rows, strict=True) if row.remark]


def formula_facts(row: PlanRow) -> list[Fact]:
    """Each term: its formula, the same with numbers, the bytes, and where it comes from."""
    facts = []
    for term in row.terms:
        size = "not known" if term.size_bytes is None else f"{term.size_bytes:,} B"
        facts.append(Fact(label=term.name, value=say(f"{term.formula} = {term.numbers} = {size}")))
        facts.append(Fact(label="", value=say(term.source)))
    return facts


def formula_heading(row: PlanRow) -> str:
    """Which row the terms belong to."""
    return f"{row.layout.label} on {row.world_size:,} rank{'s' if row.world_size != 1 else ''}"


def search_table(found: Sequence[Found]) -> Table:
    """What a search found under each strategy."""
    none = "none"
    columns = [
        column("strategy", Unit.TEXT, [f.layout.label for f in found]),
        column("ranks", Unit.COUNT, [None if f.row is None else f.row.world_size for f in found], absent=none),
    ]
    if any(f.batch is not None for f in found):
        columns.append(column("batch", Unit.COUNT, [None if f.row is None else f.batch for f in found], absent=none))
    columns.append(column("peak", Unit.COUNT, ["" if f.row is None else peak_text(f.row) for f in found]))
    return table("", columns)


def reasons(found: Sequence[Found]) -> list[Sentence]:
    """Why a search went no further."""
    return [say(f"{f.layout.label}: {f.reason}") for f in found]
