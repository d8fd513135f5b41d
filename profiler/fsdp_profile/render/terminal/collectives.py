"""Collectives by kind: of one rank how much of their time was exposed, over all ranks what was wait and transfer."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives.clocks import Alignment
from fsdp_profile.analysis.collectives.cross_rank import CrossRank, by_kind
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.collectives.stragglers import NeverJoined
from fsdp_profile.analysis.collectives.timeline import CallTotal
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.core.humanize import bytes_text, ns_text, rate_text, ratio_text, unit_text
from fsdp_profile.render.terminal.palette import FAILURE, QUIET
from fsdp_profile.render.terminal.parts import Field, Grid, Name, facts, heading, lines

MAX_CLOCKS: Final = 4
"""Ranks whose clock is named."""


def collectives_report(
    found: CollectiveSummary | None, *, rank: int, per_step: StepTraffic | None = None
) -> RenderableType:
    """Calls, bytes and time by kind, the exposed part of the whole, and what a step moves."""
    title = heading("Collectives", f"rank {rank}, over the training steps")
    if found is None:
        return Group(title, Text("not recorded", style=QUIET))
    kinds = sorted(found.by_kind.items(), key=lambda item: -item[1].total_ns)
    exposed = [total.exposed_ns for _, total in kinds]
    has_exposed = any(ns is not None for ns in exposed)
    grid = Grid(
        key=[Field(header="kind", cells=[kind for kind, _ in kinds], justify="left")],
        groups=[
            [
                Field(header="calls", cells=[f"{total.count:,}" for _, total in kinds]),
                Field(header="bytes", cells=[bytes_text(total.size_bytes) for _, total in kinds]),
                Field(header="time", cells=[ns_text(total.total_ns) for _, total in kinds]),
                *([Field(header="exposed", cells=[ns_text(ns) for ns in exposed])] if has_exposed else []),
            ]
        ],
    )
    rows = [("in all", _whole(found)), ("exposed", _exposed(found)), ("a step", _step(per_step))]
    return Group(title, grid, Text(), facts(rows))


def groups_report(totals: Sequence[CallTotal], *, rank: int) -> RenderableType | None:
    """Calls by process group (totals by BY_GROUP); None without any."""
    if not totals:
        return None
    names = [" ".join(filter(None, [description, group])) or "not recorded" for group, description, _ in
             (total.key for total in totals)]  # fmt: skip
    grid = Grid(
        key=[
            Field(header="group", cells=[Name(name) for name in names], justify="left"),
            Field(header="ranks", cells=["-" if t.key[2] is None else str(t.key[2]) for t in totals]),
        ],
        groups=[
            [
                Field(header="calls", cells=[f"{t.count:,}" for t in totals]),
                Field(header="bytes", cells=[bytes_text(t.size_bytes) for t in totals]),
                Field(header="time", cells=[ns_text(t.total_ns) for t in totals]),
                Field(header="exposed", cells=[ns_text(t.exposed_ns) for t in totals]),
            ],
            [
                Field(header="algbw", cells=[rate_text(t.algbw_bytes_per_s) for t in totals]),
                Field(header="busbw", cells=[rate_text(t.busbw_bytes_per_s) for t in totals]),
            ],
        ],
    )
    return Group(heading("By process group", f"rank {rank}; bandwidths are medians over matched collectives"), grid)


def _whole(found: CollectiveSummary) -> str:
    return f"{ns_text(found.total_ns)}; calls that run at the same time count once"


def _step(per_step: StepTraffic | None) -> str:
    if per_step is None:
        return "bytes not recorded: no complete step with collectives of known size and group"
    return (
        f"{bytes_text(per_step.size_bytes)} in whole arrays, {bytes_text(per_step.wire_bytes)} sent by this rank "
        f"if each is a ring (estimate); median of the complete steps"
        + (f"; {per_step.num_unknown:,} calls of unknown size apart" if per_step.num_unknown else "")
    )


def _exposed(found: CollectiveSummary) -> str:
    if found.exposed_ns is None:
        return "not recorded: no compute was recorded beside them"
    ratio = found.exposed_ns / found.total_ns if found.total_ns else 0.0
    return f"{ns_text(found.exposed_ns)} ({ratio_text(ratio)}) with no compute beside it"


def cross_rank_report(found: CrossRank | None) -> RenderableType | None:
    """Matched collectives of all ranks by kind, and what was not matched; None where one rank is all there is."""
    if found is None or found.num_matched + found.num_unmatched == 0 or found.is_single_rank:
        return None
    kinds = sorted(by_kind(found).items(), key=lambda item: -(item[1].wait_ns + item[1].transfer_ns))
    grid = Grid(
        key=[Field(header="kind", cells=[kind for kind, _ in kinds], justify="left")],
        groups=[
            [
                Field(header="matched", cells=[f"{total.count:,}" for _, total in kinds]),
                Field(header="wait", cells=[ns_text(total.wait_ns) for _, total in kinds]),
                Field(header="transfer", cells=[ns_text(total.transfer_ns) for _, total in kinds]),
                Field(header="median bus bandwidth", cells=[rate_text(total.busbw_bytes_per_s) for _, total in kinds]),
            ]
        ],
    )
    rows = [("matched", f"{found.num_matched:,} of {found.num_matched + found.num_unmatched:,} collectives")]
    rows += [("not matched", f"{count:,}: {why}") for why, count in found.unmatched.items()]
    if found.num_after_pause:
        why = f"of the waits in {found.num_after_pause:,} collectives: their last rank was in a pause of the capture"
        rows.append(("not counted", f"{ns_text(found.paused_wait_ns)} {why}"))
    rows.append(("clocks", clock_text(found.clock)))
    title = heading("Across ranks", "waits summed over ranks, transfers from the last start on")
    parts: list[RenderableType] = [title]
    if kinds:
        parts += [grid, Text()]
    parts.append(facts(rows))
    if found.never_joined:
        parts.append(lines(map(never_joined_text, found.never_joined), style=FAILURE))
    return Group(*parts)


def clock_text(clock: Alignment) -> str:
    """How the ranks' clocks were put on one axis."""
    if clock.offset_ns is None:
        return f"not aligned: {clock.reason}"
    apart = [f"rank {rank} {ns_text(ns)} ahead" for rank, ns in sorted(clock.offset_ns.items()) if ns]
    residual = f"ends agree within {ns_text(clock.residual_ns)} (median)"
    if not apart:
        return f"the same on all ranks; {residual}"
    more = f" and {len(apart) - MAX_CLOCKS} more" if len(apart) > MAX_CLOCKS else ""
    return f"{', '.join(apart[:MAX_CLOCKS])}{more}; {residual} after that"


def never_joined_text(lost: NeverJoined) -> str:
    """One line: which rank, which collective, and whether it may have joined unseen."""
    unit = "" if lost.unit is None else f" of {unit_text(lost.unit)}"
    group = " ".join(word for word in (lost.group, lost.group_description) if word)
    where = f"step {lost.step}" + (f", group {group}" if group else "")
    more = f", nor {lost.num_more:,} after it" if lost.num_more else ""
    ended = "; its recording ends before that" if lost.recording_ended else ""
    return f"rank {lost.rank} never joined {lost.kind} #{lost.index}{unit} ({where}){more}{ended}"
