"""Ranks side by side: peaks, processes, how each ended, and who made the others wait."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives.cross_rank import CrossRank
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.humanize import bytes_text, ns_text
from fsdp_profile.core.schema import Ending
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.collectives import never_joined_text
from fsdp_profile.render.terminal.memory import unit_cell
from fsdp_profile.render.terminal.palette import FAILURE
from fsdp_profile.render.terminal.parts import Field, Grid, Name, facts, heading, lines, note, sections, shortened

MANY_RANKS: Final = 16
"""More than this are shown by minimum, median, maximum and the worst."""
WORST: Final = 5
MESSAGE_CELLS: Final = 240
"""An exception's message is shortened to this."""
_NAMED_RANKS: Final = 8


def rank_peaks(ranks: Sequence[RankSummary]) -> RenderableType | None:
    """The overview's word on the ranks: a line when their peaks are the same, a short table when not."""
    known = [r for r in ranks if r.peak is not None]
    if len(known) < 2:
        return None
    sizes = sorted(_size(r) for r in known)
    spread = sizes[-1] - sizes[0]
    if bytes_text(sizes[0]) == bytes_text(sizes[-1]):
        apart = "" if not spread else f", at most {bytes_text(spread)} apart"
        return note(f"All {len(known)} ranks peak at {bytes_text(sizes[-1])}{apart}.")
    title = heading("Peaks of the ranks", f"{bytes_text(spread)} apart")
    if len(known) <= MANY_RANKS:
        return Group(title, _peaks(known))
    worst = sorted(known, key=lambda r: (-_size(r), r.rank))[:WORST]
    extremes = (("minimum", sizes[0]), ("median", statistics.median_low(sizes)), ("maximum", sizes[-1]))
    spread_rows = facts((word, bytes_text(size)) for word, size in extremes)
    return Group(title, spread_rows, Text(), note(f"the worst {WORST} of {len(known)}"), _peaks(worst))


def ranks_report(ranks: Sequence[RankSummary], matches: CrossRank | None = None) -> RenderableType:
    """All ranks: their peaks, their processes, and who made the others wait."""
    processes = Group(heading("Processes", "step time: the median after the first step"), _processes(ranks))
    peaks = Group(heading("Peaks", "over the training steps"), _peaks(ranks))
    return sections([peaks, processes, stragglers_report(matches)])


def stragglers_report(found: CrossRank | None) -> RenderableType | None:
    """Ranks that came last, the one that cost most first; None where nothing was matched or missed."""
    if found is None or not (found.num_matched or found.never_joined) or found.is_single_rank:
        return None
    parts: list[RenderableType] = [heading("Last to come", f"in {found.num_matched:,} matched collectives")]
    late = found.stragglers[:WORST]
    if late:
        parts.append(_stragglers(late))
    elif found.num_matched:
        parts.append(note("none: all ranks came to each at once"))
    if len(found.stragglers) > WORST:
        parts.append(note(f"the {WORST} that cost most, of {len(found.stragglers)} ranks that were last at least once"))
    if found.never_joined:
        parts.append(lines(map(never_joined_text, found.never_joined), style=FAILURE))
    return Group(*parts)


def _stragglers(late: Sequence[Straggler]) -> Grid:
    counts = [
        Field(header="times last", cells=[f"{s.times_last:,}" for s in late]),
        Field(header="wait caused", cells=[ns_text(s.wait_caused_ns) for s in late]),
    ]
    units = [
        Field(
            header="mostly busy with",
            cells=[unit_cell(s.worst_unit) for s in late],
            justify="left",
        ),
        Field(header="late there in sum", cells=[ns_text(s.worst_unit_late_ns) for s in late]),
    ]
    steps = [
        Field(header="worst step", cells=[str(s.worst_step) for s in late]),
        Field(header="late in it", cells=[ns_text(s.worst_step_late_ns) for s in late]),
    ]
    return Grid(key=[Field(header="rank", cells=[str(s.rank) for s in late])], groups=[counts, units, steps])


def endings(run: Run) -> Text:
    """How the run ended: one line when complete, else the ranks and why, in red."""
    records, world_size = run.manifest.ranks, run.manifest.world_size
    if run.manifest.is_imported:
        if run.manifest.complete:
            return Text(f"not told: {_counted(len(records))} imported")
        return Text("NOT COMPLETE\nimported from files of which a part is missing: see the warnings", style=FAILURE)
    if run.manifest.complete:
        return Text(f"complete: {_counted(len(records) or world_size)} came to the end of the script")
    found: dict[tuple[str, int | None, str], list[int]] = {}
    for record in records:
        if record.ending is not Ending.COMPLETED:
            found.setdefault((str(record.ending), record.exit_code, record.message), []).append(record.rank)
    lines = [
        f"{_listed(which)}: {ending}"
        + ("" if code is None else f", exit code {code}")
        + (f" ({shortened(plain(message), cells=MESSAGE_CELLS)})" if message else "")
        for (ending, code, message), which in found.items()
    ]
    missing = world_size - len(records)
    if missing > 0:
        lines.append(f"{missing} of {_counted(world_size)} left no record")
    lines = lines or ["no rank is known to have failed: see the warnings"]
    return Text("\n".join(["NOT COMPLETE", *lines]), style=FAILURE)


def lost_folders(run: Run) -> Text | None:
    """Ranks that recorded something and whose folder is not in the run; None where all are there."""
    lost = [record.rank for record in run.manifest.ranks if record.pid and record.rank not in run.ranks]
    if not lost:
        return None
    who = "it" if len(lost) == 1 else "they"
    return Text(f"{_listed(lost)} recorded too, and what {who} recorded is not in {run.path}", style=FAILURE)


def _peaks(ranks: Sequence[RankSummary]) -> Grid:
    peaks = [r.peak for r in ranks]
    where = [
        Field(header="peak", cells=[bytes_text(p.allocated_bytes if p else None) for p in peaks]),
        Field(header="step", cells=[str(p.step) if p else "" for p in peaks]),
        Field(header="phase", cells=[p.phase if p else "" for p in peaks], justify="left"),
        Field(header="unit", cells=[unit_cell(p.unit_name) if p else "" for p in peaks], justify="left"),
    ]
    measures: tuple[tuple[str, Callable[[RankSummary], int | None]], ...] = (
        ("set-up", lambda r: r.setup_peak_bytes),
        ("reserved", lambda r: r.reserved_peak_bytes),
        ("device used", lambda r: r.device_used_peak_bytes),
    )
    others = [
        Field(header=header, cells=[bytes_text(measure(r)) for r in ranks])
        for header, measure in measures
        if any(measure(r) is not None for r in ranks)
    ]
    return Grid(key=[_rank(ranks)], groups=[where, *([field] for field in others)])


def _processes(ranks: Sequence[RankSummary]) -> Grid:
    records = [r.record for r in ranks]
    where = [
        Field(
            header="host",
            cells=[Name(record.host if record and record.host else "-") for record in records],
            justify="left",
        ),
        Field(
            header="device",
            cells=[Name(record.device if record and record.device else "-") for record in records],
            justify="left",
        ),
    ]
    times = [
        Field(header="steps", cells=[f"{r.num_steps:,}" for r in ranks]),
        Field(header="step time", cells=[ns_text(r.median_step_ns) for r in ranks]),
    ]
    if any(r.host_rss_peak_bytes is not None for r in ranks):
        times.append(Field(header="host memory", cells=[bytes_text(r.host_rss_peak_bytes) for r in ranks]))
    ended = Field(header="ended", cells=[_ended(r) for r in ranks], justify="left")
    return Grid(key=[_rank(ranks)], groups=[where, times, [ended]])


def _ended(summary: RankSummary) -> Text:
    record = summary.record
    if record is None:
        return Text("no record", style=FAILURE)
    if record.ending in (Ending.COMPLETED, Ending.IMPORTED):
        return Text(str(record.ending))
    code = "" if record.exit_code is None else f" {record.exit_code}"
    return Text(f"{record.ending}{code}", style=FAILURE)


def _rank(ranks: Sequence[RankSummary]) -> Field:
    return Field(header="rank", cells=[str(r.rank) for r in ranks])


def _size(summary: RankSummary) -> int:
    return summary.peak.allocated_bytes if summary.peak is not None else 0


def _counted(num_ranks: int) -> str:
    return "the rank" if num_ranks == 1 else f"{num_ranks} ranks"


def _listed(which: Sequence[int]) -> str:
    named = ", ".join(map(str, which[:_NAMED_RANKS]))
    more = f" and {len(which) - _NAMED_RANKS} more" if len(which) > _NAMED_RANKS else ""
    return f"rank{'s' if len(which) > 1 else ''} {named}{more}"
