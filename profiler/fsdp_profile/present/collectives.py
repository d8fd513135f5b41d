"""Collectives: how much of their time was exposed, what they moved, and their sums by kind, group, unit and rank."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from fsdp_profile.analysis.collectives.cross_rank import CrossRank, by_kind
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary, KindTotal
from fsdp_profile.analysis.collectives.timeline import CallTotal
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import CollectiveKind, Phase
from fsdp_profile.core.words import label_of
from fsdp_profile.present.values import Column, Sentence, Table, Unit, column, say, strong, table

SUMS_NOTE: Final = (
    "Sums over the calls: calls that overlap in time each count in full here, but once in the exposed time of the rank."
)
BANDWIDTH_NOTE: Final = (
    "algbw and busbw are those of nccl-tests: medians over the collectives matched between the ranks, from the start "
    "of the last rank to the end."
)


def exposed_time(found: CollectiveSummary, *, rank: int, num_steps: int | None = None) -> Sentence:
    """How much of the collective time of a rank was not hidden behind compute.

    Args:
        found: the collectives of the rank.
        rank: the rank.
        num_steps: training steps with collectives, for the time per step; None leaves it out.
    """
    total, exposed = found.total_ns, found.exposed_ns
    steps = "the training steps" if num_steps is None else "1 step" if num_steps == 1 else f"{num_steps:,} steps"
    each, per_step = num_steps or 1, "" if num_steps is None else " per step"
    if exposed is None:
        whole = "" if num_steps is None else f"{ns_text(total)} "
        return say(
            strong(ns_text(total // each)), f" of collective time{per_step} ({whole}over {steps} of rank {rank}). How "
            "much of it was not hidden behind compute is ", strong("not recorded"),
            ": no kernels or operators were recorded.",
        )  # fmt: skip
    share = ratio_text(exposed / total if total else None)
    whole = "" if num_steps is None else f"{ns_text(exposed)} of {ns_text(total)} "
    return say(
        strong(f"{ns_text(exposed // each)} of {ns_text(total // each)}"),
        f" of collective time{per_step} was not hidden behind compute ({share}): {whole}over {steps} of rank {rank}."
        if num_steps is not None
        else f" of collective time was not hidden behind compute ({share}), over {steps} of rank {rank}.",
        " Calls that run at the same time count once.",
    )


def traffic(found: StepTraffic | None, *, rank: int) -> Sentence:
    """What one step moves, and what of it a rank sends if every collective runs as a ring."""
    if found is None:
        return say(
            "What a step sends is ", strong("not recorded"),
            ": there is no complete step with collectives of known size and group.",
        )  # fmt: skip
    steps = "1 complete step" if found.num_steps == 1 else f"median of {found.num_steps:,} complete steps"
    unknown = f" {found.num_unknown:,} calls of unknown size are not counted." if found.num_unknown else ""
    return say(
        f"Rank {rank} sends ", strong(bytes_text(found.wire_bytes)), " per step if each collective runs as a ring "
        "(estimate); the whole arrays hold ", strong(bytes_text(found.size_bytes)), f" ({steps}).", unknown,
    )  # fmt: skip


def kinds_table(found: CollectiveSummary | None, *, rank: int) -> Table:
    """One row per kind of a rank's collectives, the longest first; no rows where none were recorded."""
    totals = sorted(found.by_kind.items(), key=lambda item: -item[1].total_ns) if found is not None else []
    kinds = column("kind", Unit.TEXT, [_kind(kind) for kind, _ in totals])
    return table("Collectives", [kinds, *_costs([t for _, t in totals])], note=f"rank {rank}, over the training steps")


def kind_totals_table(totals: Sequence[CallTotal]) -> Table:
    """One row per kind (totals by BY_KIND)."""
    return _totals_table("By kind", [column("kind", Unit.NAME, [_kind(total.key[0]) for total in totals])], totals)


def group_totals_table(totals: Sequence[CallTotal], *, note: str = "") -> Table:
    """One row per process group (totals by BY_GROUP): what torch calls it and its name, and how many ranks it has."""
    names = [" ".join(filter(None, [total.key[1], total.key[0]])) or "not recorded" for total in totals]
    keys = [column("group", Unit.NAME, names), column("ranks", Unit.COUNT, [total.key[2] for total in totals])]
    return _totals_table("By process group", keys, totals, note=note)


def unit_totals_table(totals: Sequence[CallTotal]) -> Table:
    """One row per unit (totals by BY_UNIT)."""
    names = ["(no unit)" if total.key[0] is None else unit_text(total.key[0]) for total in totals]
    return _totals_table("By unit", [column("unit", Unit.NAME, names)], totals)


def rank_totals_table(totals: Sequence[CallTotal]) -> Table:
    """One row per rank (totals by BY_RANK)."""
    return _totals_table("By rank", [column("rank", Unit.COUNT, [int(total.key[0]) for total in totals])], totals)


def directions_table(rows: pa.Table, *, rank: int, max_steps: int | None = None) -> Table:
    """Collectives by step, phase and kind (rows of `exposed_by_step`); of the first steps only where there are more."""
    steps = list(dict.fromkeys(rows.column("step").to_pylist()))
    first = steps if max_steps is None else steps[:max_steps]
    shown = [row for row in rows.to_pylist() if row["step"] in first]
    which = "" if len(first) == len(steps) else f", the first {len(first)} of {len(steps):,} steps"
    return table(
        "By step, phase and kind",
        [
            column("step", Unit.COUNT, [row["step"] for row in shown]),
            column("phase", Unit.TEXT, [label_of(Phase, row["phase"]) for row in shown]),
            column("kind", Unit.TEXT, [_kind(row["kind"]) for row in shown]),
            column("calls", Unit.COUNT, [row["count"] for row in shown]),
            column("bytes", Unit.BYTES, [row["size_bytes"] for row in shown]),
            column("time", Unit.NS, [row["total_ns"] for row in shown]),
            column("exposed", Unit.NS, [row["exposed_ns"] for row in shown], follows=True),
        ],
        note=f"rank {rank}{which}",
        num_keys=3,
    )


def cross_rank_table(found: CrossRank) -> Table:
    """The matched collectives of all ranks by kind: wait, transfer and bandwidth."""
    kinds = sorted(by_kind(found).items(), key=lambda item: -(item[1].wait_ns + item[1].transfer_ns))
    return table(
        "Cross-rank",
        [
            column("kind", Unit.TEXT, [_kind(kind) for kind, _ in kinds]),
            column("matched", Unit.COUNT, [total.count for _, total in kinds]),
            column("wait", Unit.NS, [total.wait_ns for _, total in kinds]),
            column("transfer", Unit.NS, [total.transfer_ns for _, total in kinds]),
            column("median bus bandwidth", Unit.RATE, [total.busbw_bytes_per_s for _, total in kinds]),
        ],
        note="waits are summed over the ranks, a transfer begins when its last rank starts",
    )


def overlap_table(found: Mapping[int, CollectiveSummary | None]) -> Table:
    """Exposed and overlapped time of the collectives of each rank."""
    mine = list(found.values())
    shares = [m.overlapped_ns / m.total_ns if m and m.overlapped_ns is not None and m.total_ns else None for m in mine]
    return table(
        "Collectives and compute",
        [
            column("rank", Unit.COUNT, list(found)),
            column("collectives", Unit.NS, [m.total_ns if m else None for m in mine]),
            column("exposed", Unit.NS, [m.exposed_ns if m else None for m in mine]),
            column("overlapped", Unit.NS, [m.overlapped_ns if m else None for m in mine]),
            column("overlapped", Unit.RATIO, shares),
        ],
        note="over the training steps; what runs at the same time counts once",
    )


def _kind(code: str) -> str:
    return label_of(CollectiveKind, str(code))


def _costs(totals: Sequence[KindTotal] | Sequence[CallTotal]) -> list[Column]:
    return [
        column("calls", Unit.COUNT, [total.count for total in totals]),
        column("bytes", Unit.BYTES, [total.size_bytes for total in totals], follows=True),
        column("time", Unit.NS, [total.total_ns for total in totals], follows=True),
        column("exposed", Unit.NS, [total.exposed_ns for total in totals], follows=True),
    ]


def _totals_table(title: str, keys: Sequence[Column], totals: Sequence[CallTotal], *, note: str = "") -> Table:
    columns = [
        *keys,
        *_costs(totals),
        column("overlapped", Unit.NS, [total.overlapped_ns for total in totals], follows=True),
        column("algbw", Unit.RATE, [total.algbw_bytes_per_s for total in totals]),
        column("busbw", Unit.RATE, [total.busbw_bytes_per_s for total in totals], follows=True),
    ]
    return table(title, columns, note=note, num_keys=len(keys))
