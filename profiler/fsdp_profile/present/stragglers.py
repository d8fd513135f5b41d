"""Which rank the others waited for, how long, and which collectives a rank never joined."""

from collections.abc import Iterable, Sequence

from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary
from fsdp_profile.analysis.collectives.stragglers import NeverJoined, Straggler
from fsdp_profile.analysis.collectives.timeline import RankWait
from fsdp_profile.core.humanize import ns_text, unit_text
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.core.words import label_of
from fsdp_profile.present.values import Sentence, Table, Unit, column, joined, name, say, strong, table

NO_ACTIVE_UNIT = "(no active unit)"


def late_rank(stragglers: Sequence[Straggler], num_matched: int) -> Sentence:
    """The rank that the others waited for most; where two ranks cost about the same, both and no blame.

    Args:
        stragglers: the ranks that came last at least once, by the wait they caused; two are enough.
        num_matched: how many collectives were matched.
    """
    if not num_matched:
        return say(strong("Not recorded"), ": no collective could be matched between the ranks.")
    if not stragglers:
        return say(
            strong("No rank was late"), f": all ranks reached each of the {num_matched:,} matched collectives together."
        )
    worst = stragglers[0]
    if len(stragglers) > 1 and 2 * stragglers[1].wait_caused_ns > worst.wait_caused_ns:
        both = joined(map(_cost, stragglers[:2]), "; ")
        return say(strong("No rank stands out"), f" in {num_matched:,} matched collectives: ", both, ".")
    unit = () if worst.worst_unit is None else ("; its slowest unit was ", name(unit_text(worst.worst_unit)))
    return say(
        strong(f"Rank {worst.rank}"), f" came last in {worst.times_last:,} of {num_matched:,} matched collectives, and "
        "the other ranks waited ", strong(ns_text(worst.wait_caused_ns)), " for it in total", *unit, ".",
    )  # fmt: skip


def _cost(one: Straggler) -> Sentence:
    return say(f"rank {one.rank} came last in {one.times_last:,} ({ns_text(one.wait_caused_ns)} of waiting)")


def stragglers_table(stragglers: Sequence[Straggler], *, num_matched: int) -> Table:
    """One row per rank that came last at least once, the one that cost most first."""
    units = [NO_ACTIVE_UNIT if one.worst_unit is None else unit_text(one.worst_unit) for one in stragglers]
    return table(
        "Late ranks",
        [
            column("rank", Unit.COUNT, [one.rank for one in stragglers]),
            column("times last", Unit.COUNT, [one.times_last for one in stragglers]),
            column("wait caused", Unit.NS, [one.wait_caused_ns for one in stragglers], follows=True),
            column("slowest unit", Unit.NAME, units),
            column("late in that unit", Unit.NS, [one.worst_unit_late_ns for one in stragglers], follows=True),
            column("worst step", Unit.COUNT, [one.worst_step for one in stragglers]),
            column("late in that step", Unit.NS, [one.worst_step_late_ns for one in stragglers], follows=True),
        ],
        note=f"in {num_matched:,} matched collectives",
    )


def waits_table(waits: Sequence[RankWait]) -> Table:
    """One row per rank: how long it waited for the last rank, and how long its transfers took."""
    return table(
        "Waits",
        [
            column("rank", Unit.COUNT, [wait.rank for wait in waits]),
            column("matched", Unit.COUNT, [wait.count for wait in waits]),
            column("waited", Unit.NS, [wait.wait_ns for wait in waits]),
            column("transfer", Unit.NS, [wait.transfer_ns for wait in waits]),
        ],
        note="summed over the matched collectives",
    )


def matched(found: CrossRank | CrossRankSummary) -> Sentence:
    """How many collectives were matched between the ranks, and why the others were not."""
    whole = found.num_matched + found.num_unmatched
    reasons = "".join(f"; {count:,} not: {reason}" for reason, count in found.unmatched.items())
    pauses = ""
    if found.num_after_pause:
        pauses = (
            f" Waits of {ns_text(found.paused_wait_ns)} in {found.num_after_pause:,} of them are not counted: the last "
            "rank was in a pause in which the capture wrote its data."
        )
    return say(f"{found.num_matched:,} of {whole:,} collectives were matched between the ranks{reasons}.{pauses}")


def never_joined(lost: Iterable[NeverJoined]) -> list[Sentence]:
    """Which rank did not reach which collective, and whether it may have joined after its recording ended."""
    return [_never_joined(one) for one in lost]


def _never_joined(lost: NeverJoined) -> Sentence:
    unit = () if lost.unit is None else (" of ", name(unit_text(lost.unit)))
    words = " ".join(word for word in (lost.group, lost.group_description) if word)
    group = (", group ", name(words)) if words else ()
    more = f", nor {lost.num_more:,} after it" if lost.num_more else ""
    ended = "; its recording ends before that" if lost.recording_ended else ""
    kind = label_of(CollectiveKind, lost.kind)
    # A kind that is not one of ours comes from the run's files.
    what = kind if kind != lost.kind else name(kind)
    return say(
        f"Rank {lost.rank} never joined ", what, f" #{lost.index}", *unit, f" (step {lost.step}", *group, ")", more,
        ended, ".",
    )  # fmt: skip
