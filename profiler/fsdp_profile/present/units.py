"""The units of a rank: what each holds, when it was gathered, and what its communication cost."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fsdp_profile.analysis.units.in_flight import InFlight
from fsdp_profile.analysis.units.summaries import UnitSummary
from fsdp_profile.core.humanize import unit_text
from fsdp_profile.core.schema import Phase, Prefetch
from fsdp_profile.core.words import label_of
from fsdp_profile.present.values import Column, Table, Unit, Value, column, table

UNITS_NOTE: Final = (
    "sharded: the parameter bytes that this rank keeps. gathered time: from all-gather to reshard. "
    "exposed: all-gather and reduction not hidden behind compute."
)
BUCKETS_NOTE: Final = "reduction: time of its all-reduces; exposed: the part not hidden behind compute."
IN_FLIGHT_NOTE: Final = (
    "ahead: gathered before the unit's own forward or backward began (prefetch). held: gathered parameters and "
    "all-gather buffers in memory. Times are measured on the host."
)
GATHERS_NOTE: Final = (
    "prefetch: implicit is the wrapper's default in backward, explicit is requested by the script. ahead: from the "
    "issue of the all-gather to the unit's own forward or backward. gathered: from the issue to the reshard. Times "
    "are measured on the host."
)
PREFETCHED: Final = "yes, origin not recorded"


def units_note(units: Sequence[UnitSummary]) -> str:
    """What the columns of `units_table` mean."""
    return UNITS_NOTE if _gathers(units) else BUCKETS_NOTE


def units_table(units: Sequence[UnitSummary], *, rank: int, has_total: bool = False) -> Table:
    """One row per unit; where nothing is gathered (DDP) without the columns about that.

    Args:
        units: the rows.
        rank: whose units they are.
        has_total: whether a last row sums up the others.
    """

    def numbers(label: str, unit: Unit, values: list[int | None], *, has_sum: bool = True) -> Column:
        total: list[Value] = [_sum(values) if has_sum else ""] if has_total else []
        return column(label, unit, [*values, *total])

    gathers = _gathers(units)
    columns = [
        column("unit", Unit.NAME, [*(unit_text(u.name) for u in units), *(["all"] if has_total else [])]),
        numbers("parameters", Unit.COUNT, [u.numel for u in units]),
        numbers("sharded" if gathers else "size", Unit.BYTES, [u.sharded_bytes for u in units]),
    ]
    if gathers:
        columns += [
            numbers("unsharded", Unit.BYTES, [u.unsharded_bytes for u in units]),
            numbers("shards", Unit.COUNT, [u.shard_size for u in units], has_sum=False),
            numbers("gathers", Unit.COUNT, [u.num_gathers for u in units]),
            numbers("reshards", Unit.COUNT, [u.num_reshards for u in units]),
            numbers("gathered time", Unit.NS, [u.gathered_ns for u in units], has_sum=False),
            numbers("all-gather", Unit.NS, [u.all_gather_ns for u in units]),
        ]
    columns += [
        numbers("reduction", Unit.NS, [u.reduce_scatter_ns for u in units]),
        numbers("exposed", Unit.NS, [u.exposed_ns for u in units]),
    ]
    title = "1 unit" if len(units) == 1 else f"{len(units):,} units"
    note = f"rank {rank}, counts and times summed over the training steps"
    return table(title, columns, note=note, num_totals=int(has_total and bool(units)))


def largest_units_table(units: Sequence[UnitSummary], *, rank: int, num: int) -> Table:
    """The largest units in the order of construction, with the columns that a newcomer needs."""
    largest = sorted(units, key=lambda u: (-u.unsharded_bytes, u.unit))[:num]
    shown = [u for u in units if u in largest]
    wanted = ("unit", "size", "sharded", "unsharded", "gathers", "gathered time")
    columns = [
        one
        for one in units_table(shown, rank=rank).columns
        if one.label in wanted or (one.label == "exposed" and any(value is not None for value in one.values))
    ]
    which = f"the {len(shown)} largest of {len(units):,}, " if len(shown) < len(units) else ""
    return table("Units", columns, note=f"{which}rank {rank}, times summed over the training steps")


def in_flight_table(found: Sequence[InFlight]) -> Table:
    """The most units and bytes that were gathered at once, one row per phase."""
    return table(
        "Gathered at once",
        [
            column("phase", Unit.TEXT, [label_of(Phase, f.phase) for f in found]),
            column("units", Unit.COUNT, [f.max_gathered for f in found]),
            column("bytes", Unit.BYTES, [f.gathered_bytes for f in found], follows=True),
            column("units ahead", Unit.COUNT, [f.max_ahead for f in found]),
            column("bytes ahead", Unit.BYTES, [f.ahead_bytes for f in found], follows=True),
            column("held", Unit.BYTES, [f.held_bytes for f in found]),
            column("which units", Unit.NAME, [", ".join(map(unit_text, f.units)) for f in found]),
        ],
        note="the most over the training steps",
    )


def gathers_table(gathers: pa.Table, *, step: int, start_ns: int) -> Table:
    """Every gather of a step that begins at `start_ns`, by time."""
    issue, use, end, sizes, ahead, by = (
        gathers.column(name).to_pylist()
        for name in ("issue_ns", "use_ns", "end_ns", "size_bytes", "prefetched", "prefetch")
    )
    lead = [None if used is None else used - issued for used, issued in zip(use, issue, strict=True)]
    prefetch = [
        ("no" if not is_ahead else label_of(Prefetch, origin) if origin else PREFETCHED)
        for is_ahead, origin in zip(ahead, by, strict=True)
    ]
    return table(
        f"Gathers of step {step}",
        [
            column("unit", Unit.NAME, map(unit_text, gathers.column("name").to_pylist())),
            column("phase", Unit.TEXT, [label_of(Phase, phase) for phase in gathers.column("phase").to_pylist()]),
            column("prefetch", Unit.TEXT, prefetch),
            column("issued", Unit.NS, [issued - start_ns for issued in issue]),
            column("ahead", Unit.NS, lead),
            column("resharded", Unit.NS, [ended - start_ns for ended in end]),
            column("gathered", Unit.NS, [ended - issued for ended, issued in zip(end, issue, strict=True)]),
            column("bytes", Unit.BYTES, sizes),
        ],
    )


def _gathers(units: Sequence[UnitSummary]) -> bool:
    return any(u.shard_size > 1 or u.num_gathers for u in units)


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum; None with one value missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
