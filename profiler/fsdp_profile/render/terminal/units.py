"""Units: what each keeps, what it gathers, and what its communication cost."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text
from fsdp_profile.core.units import is_bucket
from fsdp_profile.render.terminal.palette import QUIET
from fsdp_profile.render.terminal.parts import Field, Grid, Name, heading, note

LARGEST: Final = 8
"""Units of the overview's table."""

_MEANING_DDP: Final = "reduce: time of its all-reduces; exposed: the part of it with no compute beside it."
_MEANING: Final = (
    "kept: the shard on this rank. time gathered: from all-gather to reshard. "
    "exposed: all-gather and reduce with no compute beside them."
)


_MEANING_IN_FLIGHT: Final = (
    "ahead: gathered before its own forward or backward began (prefetch). "
    "held: gathered parameters and all-gather buffers in the ledger."
)


def largest_units(units: Sequence[UnitSummary], *, rank: int) -> RenderableType | None:
    """The short table of the overview: the largest units, in the order of construction; None without units."""
    if not units:
        return None
    largest = sorted(units, key=lambda u: (-u.unsharded_bytes, u.unit))[:LARGEST]
    shown = [u for u in units if u in largest]
    fields = [_bytes("kept", [u.sharded_bytes for u in shown])]
    if _gathers(units):
        fields += [
            _bytes("gathered", [u.unsharded_bytes for u in shown]),
            _counts("gathers", [u.num_gathers for u in shown]),
            _times("time gathered", [u.gathered_ns for u in shown]),
        ]
    if any(u.exposed_ns is not None for u in shown):
        fields += [_times("exposed", [u.exposed_ns for u in shown])]
    which = f"the {len(shown)} largest of {len(units)}, " if len(shown) < len(units) else ""
    title = heading("Units", f"{which}rank {rank}, times summed over the training steps")
    return Group(title, Grid(key=[_names(shown)], groups=[fields]))


def units_report(units: Sequence[UnitSummary], *, rank: int) -> RenderableType:
    """Every unit of a rank, and their sums."""
    if not units:
        return Group(heading("Units", f"rank {rank}"), Text("not recorded", style=QUIET))
    sharded, unsharded = [u.sharded_bytes for u in units], [u.unsharded_bytes for u in units]
    sizes = [_counts("numel", _summed([u.numel for u in units])), _bytes("kept", _summed(sharded))]
    costs = [
        _times("reduce", _summed([u.reduce_scatter_ns for u in units])),
        _times("exposed", _summed([u.exposed_ns for u in units])),
    ]
    if _gathers(units):
        sizes += [
            _bytes("gathered", _summed(unsharded)),
            _counts("gathers", _summed([u.num_gathers for u in units])),
            _counts("reshards", _summed([u.num_reshards for u in units])),
        ]
        costs = [
            Field(header="time gathered", cells=[*(ns_text(u.gathered_ns) for u in units), ""]),
            _times("all-gather", _summed([u.all_gather_ns for u in units])),
            *costs,
        ]
    title = heading(f"{len(units)} units", f"rank {rank}, counts and times summed over the training steps")
    grid = Grid(key=[_names(units, "all")], groups=[sizes, costs], num_totals=1)
    return Group(title, grid, Text(), note(_MEANING if _gathers(units) else _MEANING_DDP))


def in_flight_report(found: Sequence[InFlight]) -> RenderableType | None:
    """How much was gathered at once, by phase; None where nothing is gathered."""
    if not found:
        return None
    grid = Grid(
        key=[Field(header="phase", cells=[f.phase for f in found], justify="left")],
        groups=[
            [
                _counts("units", [f.max_gathered for f in found]),
                _bytes("bytes", [f.gathered_bytes for f in found]),
            ],
            [
                _counts("ahead", [f.max_ahead for f in found]),
                _bytes("bytes ahead", [f.ahead_bytes for f in found]),
            ],
            [_bytes("held", [f.held_bytes for f in found])],
            [Field(header="units then", cells=[Name(_listed(f.units)) for f in found], justify="left")],
        ],
    )
    title = heading("Gathered at once", "the most over the training steps, host time")
    return Group(title, grid, Text(), note(_MEANING_IN_FLIGHT))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(unit_text(name) for name in names)


def _gathers(units: Sequence[UnitSummary]) -> bool:
    return any(not is_bucket(u.kind) for u in units)


def _summed(values: Sequence[int | None]) -> list[int | None]:
    """The values and their sum; with one missing there is no sum."""
    known = [value for value in values if value is not None]
    return [*values, sum(known) if len(known) == len(values) else None]


def _names(units: Sequence[UnitSummary], *totals: str) -> Field:
    return Field(header="unit", cells=[*(Name(unit_text(u.name)) for u in units), *totals], justify="left")


def _bytes(header: str, values: Sequence[int | None]) -> Field:
    return Field(header=header, cells=[bytes_text(value) for value in values])


def _counts(header: str, values: Sequence[int | None]) -> Field:
    return Field(header=header, cells=["not recorded" if value is None else f"{value:,}" for value in values])


def _times(header: str, values: Sequence[int | None]) -> Field:
    return Field(header=header, cells=[ns_text(value) for value in values])
