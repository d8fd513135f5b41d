"""The time breakdown of this profiler beside that of Holistic Trace Analysis (HTA), and why the two differ."""

from collections.abc import Mapping, Sequence
from typing import Final

from fsdp_profile.analysis.hta.comparison import Differences, Ours, Ratios, hta_ratios, is_same
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.present.values import Sentence, Table, Unit, column, say, table

_NOTHING: Final = Ratios(overlap=None, idle=None, compute=None)
_MEASURES: Final = ("overlap", "idle", "compute")


def comparison_table(tables: Sequence[HtaTable], ours: Mapping[int, Ours], *, max_rows: int) -> Table:
    """One row per rank of either tool: its three ratios by HTA and by this profiler."""
    theirs = hta_ratios(list(tables))
    ranks = sorted({*theirs, *ours})[:max_rows]
    columns = [column("rank", Unit.COUNT, ranks)]
    for measure in _MEASURES:
        pairs = [
            (_ratio(theirs.get(r), measure), _ratio(ours[r].ratios if r in ours else None, measure)) for r in ranks
        ]
        columns += [
            column(f"{measure} HTA", Unit.FINE_RATIO, [hta for hta, _ in pairs], absent="-"),
            column(f"{measure} ours", Unit.FINE_RATIO, [our for _, our in pairs], absent="-", follows=True),
        ]
    note = "overlap of communication with compute; idle and compute time as shares of the active span"
    return table("HTA and ours", columns, note=note)


def reasons(tables: Sequence[HtaTable], ours: Mapping[int, Ours]) -> list[Sentence]:
    """Why the two differ, rank by rank; empty where they agree wherever both have a number."""
    theirs = hta_ratios(list(tables))
    found = []
    for rank in sorted({*theirs, *ours}):
        mine = ours[rank].ratios if rank in ours else None
        if any(is_same(_ratio(theirs.get(rank), m), _ratio(mine, m)) is False for m in _MEASURES):
            known = _known_reasons(ours[rank].differences) if rank in ours else ["only HTA has numbers"]
            found += [
                say(f"Rank {rank}: {reason}.") for reason in known or ["the numbers differ for an unknown reason"]
            ]
    return found


def num_ranks(tables: Sequence[HtaTable], ours: Mapping[int, Ours]) -> int:
    """Ranks that either tool knows."""
    return len({*hta_ratios(list(tables)), *ours})


def hta_table(found: HtaTable, *, max_rows: int | None = None) -> Table:
    """One of HTA's tables as it is; a column of mixed values is shown as text."""
    rows = found.rows[:max_rows]
    columns = []
    for number, label in enumerate(found.columns):
        values = [row[number] for row in rows]
        if all(value is None or (isinstance(value, int | float) and value is not True) for value in values):
            columns.append(column(label.replace("_", " "), Unit.NUMBER, values, absent="-"))
        else:
            texts = [None if value is None else str(value) for value in values]
            columns.append(column(label.replace("_", " "), Unit.NAME, texts, absent="-"))
    return table(f"HTA: {found.name}", columns)


def _ratio(found: Ratios | None, measure: str) -> float | None:
    ratio: float | None = getattr(found or _NOTHING, measure)
    return ratio


def _known_reasons(found: Differences) -> list[str]:
    reasons = []
    if found.num_dropped:
        reasons.append(
            f"HTA drops {found.num_dropped:,} of {found.num_works:,} kernels and copies, which were launched before "
            "the recording began and ran in it"
        )
    if found.num_taken_for_compute:
        reasons.append(
            f"HTA counts {found.num_taken_for_compute:,} of {found.num_collectives:,} communication kernels as "
            "compute, because of their names"
        )
    return reasons
