"""Plans as text: a table of layouts, the formulas behind it, what fits, and what a search found."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, count_text, decimal_text, ratio_text
from fsdp_profile.plan.calibrate import Verification
from fsdp_profile.plan.formulas.costs import Basis, ModelSize, PlanRow
from fsdp_profile.plan.formulas.devices import TIGHT_RATIO, Device
from fsdp_profile.plan.formulas.recipes import Recipe
from fsdp_profile.plan.formulas.search import Found
from fsdp_profile.render.terminal.memory import category_key
from fsdp_profile.render.terminal.palette import FAILURE, WARNING
from fsdp_profile.render.terminal.parts import Cell, Field, Grid, Name, facts, heading, lines, note, sections
from fsdp_profile.render.terminal.stack import StackedBar

_TITLES = {
    Basis.FORMULA: "an estimate from formulas",
    Basis.SIMULATED: "an estimate from a simulated step",
    Basis.CALIBRATED: "an estimate calibrated by a measured run",
    Basis.MEASURED: "measured",
}
_LETTERS = (
    "P parameters, T trained; p g k c r bytes of a parameter, gradient, optimizer state, gathered parameter, gradient "
    "on its way; N ranks, S shards, M replicas; U largest unit, d units at once; s b h L V sequence, batch, width, "
    "layers, vocabulary"
)
_LEFT_OUT = (
    "Not in it: CUDA context, NCCL buffers, allocator rounding and fragmentation, workspaces. "
    f"Tight: more than {ratio_text(TIGHT_RATIO, digits=0)} of the device; maybe: not all of it is known."
)


def plan_report(
    rows: Sequence[PlanRow], *, devices: Sequence[Device], title: str, subtitle: str = "",
    remarks: Sequence[str] = (), explain: bool = False,
) -> RenderableType:  # fmt: skip
    """The whole page."""
    parts: list[RenderableType | None] = [
        Group(Text(title, style="bold"), *([note(subtitle)] if subtitle else [])),
        _table(rows, devices),
        _composition(rows),
        *([_formulas(row) for row in rows if row.terms] if explain else []),
        lines(remarks, style=WARNING) if remarks else None,
        note(_LEFT_OUT) if any(row.basis is not Basis.MEASURED for row in rows) else None,
    ]
    return sections(parts)


def formula_title(model: ModelSize, recipe: Recipe, world_sizes: Sequence[int]) -> str:
    """What is planned, in one line."""
    ranks = ", ".join(map(str, world_sizes))
    trained = "" if model.trainable_numel is None else f" ({count_text(model.trained)} trained)"
    plural = "s" if list(world_sizes) != [1] else ""
    return f"{count_text(model.numel)} parameters{trained}, {recipe.name}, {ranks} rank{plural}"


def _table(rows: Sequence[PlanRow], devices: Sequence[Device]) -> RenderableType:
    several = len({row.world_size for row in rows}) > 1
    key = [Field(header="strategy", cells=[str(row.layout) for row in rows], justify="left")]
    if several:
        key.append(Field(header="ranks", cells=[f"{row.world_size:,}" for row in rows]))
    groups = [
        [
            _sizes("parameters", [row.param_bytes for row in rows]),
            _sizes("gradients", [row.grad_bytes for row in rows]),
            _sizes("optimizer", [row.optimizer_bytes for row in rows]),
        ],
        [
            _sizes("states", [row.states_bytes for row in rows]),
            Field(header="in GB", cells=[decimal_text(row.states_bytes) for row in rows]),
        ],
        [
            _sizes("gathered", [row.gathered_bytes for row in rows]),
            _sizes("unreduced", [row.reduced_bytes for row in rows]),
            _sizes("activations", [row.activation_bytes for row in rows]),
        ],
        [Field(header="peak", cells=[_peak(row) for row in rows])],
    ]
    if any(row.error_ratio is not None for row in rows):
        groups.append([Field(header="error", cells=[_error(row) for row in rows])])
    if any(row.traffic_bytes is not None for row in rows):
        groups.append([_sizes("sent per step", [row.traffic_bytes for row in rows])])
    groups += [[Field(header=device.title, cells=[_fits(row, device) for row in rows], justify="left")]
               for device in devices]  # fmt: skip
    bases = list(dict.fromkeys(row.basis for row in rows))
    if len(bases) > 1:
        key.append(Field(header="basis", cells=[str(row.basis) for row in rows], justify="left"))
    title = "; ".join(_TITLES[basis] for basis in bases)
    return Group(heading("Bytes of one rank", title), Grid(key=key, groups=groups))


def _sizes(header: str, sizes: Sequence[int | None]) -> Field:
    return Field(header=header, cells=["?" if size is None else bytes_text(size) for size in sizes])


def _peak(row: PlanRow) -> str:
    return bytes_text(row.peak_bytes) if row.peak_bytes is not None else f"> {bytes_text(row.needed_bytes)}"


def _error(row: PlanRow) -> str:
    return "?" if row.error_ratio is None else f"±{ratio_text(row.error_ratio)}"


def _fits(row: PlanRow, device: Device) -> Text:
    fits = row.fits(device)
    share = row.needed_bytes / device.total_bytes
    if fits is False:
        return Text(f"no ({share:.2f}x)", style=FAILURE)
    text = ratio_text(share, digits=0) if share >= 0.01 else "<1 %"
    if share > TIGHT_RATIO:
        return Text(f"tight ({text})", style=WARNING)
    return Text(f"{'fits' if fits else 'maybe'} ({text})")


def _composition(rows: Sequence[PlanRow]) -> RenderableType | None:
    """Peaks that were simulated or calibrated, by category, on one scale."""
    shown = [row for row in rows if row.by_category]
    if not shown:
        return None
    scale = max(row.peak_bytes or 0 for row in shown)
    held = [{Category(name): size for name, size in row.by_category.items()} for row in shown]
    names = [_label(row, shown) for row in shown]
    bars: list[Cell] = [StackedBar(by_category=by, scale_bytes=scale) for by in held]
    bar_grid = Grid(
        key=[Field(header="strategy", cells=[Name(name) for name in names], justify="left")],
        groups=[
            [
                Field(header="", cells=bars, justify="left"),
                Field(header="peak", cells=[bytes_text(row.peak_bytes) for row in shown]),
            ]
        ],
    )
    categories = [c for c in CATEGORIES if any(by.get(c) for by in held)]
    columns = [
        [Field(header=name, cells=[*(bytes_text(by.get(c, 0)) for c in categories), bytes_text(row.peak_bytes)])]
        for name, by, row in zip(names, held, shown, strict=True)
    ]
    table = Grid(key=category_key(categories), groups=columns, num_totals=1)
    told = lines(f"{name}: {row.remark}" for name, row in zip(names, shown, strict=True) if row.remark)
    return Group(heading("What the peak is made of", "all on one scale"), bar_grid, Text(), table, Text(), told)


def _label(row: PlanRow, rows: Sequence[PlanRow]) -> str:
    """The layout; with its ranks, or how it is known, where two rows share a layout."""
    same = [other for other in rows if other.layout is row.layout]
    words = [str(row.layout)]
    if len({other.world_size for other in rows}) > 1:
        words.append(f"x{row.world_size}")
    if len({other.basis for other in same}) > 1:
        words.append(str(row.basis))
    return " ".join(words)


def _formulas(row: PlanRow) -> RenderableType:
    """Each term: its formula, the same with numbers, the bytes, and where it comes from."""
    rows: list[tuple[str, str | Text]] = []
    for term in row.terms:
        size = "not known" if term.size_bytes is None else f"{term.size_bytes:,} B"
        rows.append((term.name, f"{term.formula} = {term.numbers} = {size}"))
        rows.append(("", note(term.source)))
    return Group(
        heading(f"{row.layout} on {_ranks(row.world_size)}", "how it was calculated"), facts(rows), note(_LETTERS)
    )


def _ranks(number: int) -> str:
    return f"{number:,} rank{'s' if number != 1 else ''}"


def search_report(found: Sequence[Found], *, title: str) -> RenderableType:
    """What a search found, with the reason."""
    cells = ["none" if f.row is None else f"{f.row.world_size:,}" for f in found]
    fields = [Field(header="ranks", cells=cells)]
    if any(f.batch is not None for f in found):
        fields.append(Field(header="batch", cells=["none" if f.row is None else f"{f.batch:,}" for f in found]))
    fields.append(Field(header="peak", cells=["" if f.row is None else _peak(f.row) for f in found]))
    grid = Grid(key=[Field(header="strategy", cells=[str(f.layout) for f in found], justify="left")], groups=[fields])
    reasons = lines(f"{f.layout}: {f.reason}" for f in found)
    return sections([Text(title, style="bold"), grid, Group(heading("Why"), reasons), note(_LEFT_OUT)])


def verification_report(found: Verification) -> RenderableType:
    """A prediction beside the run that was recorded to test it."""
    rows = [found.predicted, found.measured]
    predicted, measured = (bytes_text(row.peak_bytes) for row in rows)
    return sections(
        [
            Text(f"Predicted {predicted}, measured {measured}: {found.error_ratio:+.1%}", style="bold"),
            _composition(rows),
        ]
    )
