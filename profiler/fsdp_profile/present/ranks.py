"""Ranks side by side: their peaks, their processes and how each one ended."""

import statistics
from collections.abc import Callable, Sequence

from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Phase
from fsdp_profile.core.words import label_of
from fsdp_profile.present.endings import FAILED_ENDINGS, ending_text
from fsdp_profile.present.stragglers import NO_ACTIVE_UNIT
from fsdp_profile.present.values import Column, Fact, Sentence, Table, Tone, Unit, column, say, table


def ranks_table(ranks: Sequence[RankSummary]) -> Table:
    """One row per rank with everything known of it, absent measurements included."""
    return table("Ranks", [_rank(ranks), *_memory(ranks), *_process(ranks)])


def peaks_table(ranks: Sequence[RankSummary], *, title: str = "Peaks", note: str = "over the training steps") -> Table:
    """The peak of each rank, where it is, and the other high-water marks that were recorded."""
    return table(title, [_rank(ranks), *_recorded(_memory(ranks))], note=note)


def processes_table(ranks: Sequence[RankSummary]) -> Table:
    """The process of each rank: where it ran, how long its steps took and how it ended."""
    columns = [_rank(ranks), *_recorded(_process(ranks))]
    return table("Processes", columns, note="median step: after the first one")


def same_peaks(ranks: Sequence[RankSummary]) -> Sentence | None:
    """That all ranks have the same peak, as far as its text tells; None where they differ."""
    sizes = _sizes(ranks)
    if bytes_text(sizes[0]) != bytes_text(sizes[-1]):
        return None
    apart = f", at most {bytes_text(sizes[-1] - sizes[0])} apart" if sizes[-1] > sizes[0] else ""
    return say(f"All {len(sizes)} ranks peak at {bytes_text(sizes[-1])}{apart}.")


def peak_spread(ranks: Sequence[RankSummary]) -> list[Fact]:
    """The lowest, the middle and the highest peak."""
    sizes = _sizes(ranks)
    marks = (("minimum", sizes[0]), ("median", statistics.median_low(sizes)), ("maximum", sizes[-1]))
    return [Fact(label=label, value=say(bytes_text(size))) for label, size in marks]


def worst_peaks(ranks: Sequence[RankSummary], *, num: int) -> list[RankSummary]:
    """The ranks with the highest peaks, highest first."""
    known = [r for r in ranks if r.peak is not None]
    return sorted(known, key=lambda r: (-r.peak.allocated_bytes if r.peak else 0, r.rank))[:num]


def _sizes(ranks: Sequence[RankSummary]) -> list[int]:
    return sorted(r.peak.allocated_bytes for r in ranks if r.peak is not None)


def _rank(ranks: Sequence[RankSummary]) -> Column:
    return column("rank", Unit.COUNT, [r.rank for r in ranks])


def _memory(ranks: Sequence[RankSummary]) -> list[Column]:
    peaks = [r.peak for r in ranks]
    units = [None if p is None else NO_ACTIVE_UNIT if p.unit_name is None else unit_text(p.unit_name) for p in peaks]
    marks: tuple[tuple[str, Callable[[RankSummary], int | None]], ...] = (
        ("set-up peak", lambda r: r.setup_peak_bytes),
        ("reserved peak", lambda r: r.reserved_peak_bytes),
        ("device used", lambda r: r.device_used_peak_bytes),
    )
    return [
        column("peak", Unit.BYTES, [p.allocated_bytes if p else None for p in peaks]),
        column("step", Unit.COUNT, [p.step if p else None for p in peaks], absent="", follows=True),
        column("phase", Unit.TEXT, [label_of(Phase, p.phase) if p else None for p in peaks], absent="", follows=True),
        column("unit", Unit.NAME, units, absent="", follows=True),
        *(column(label, Unit.BYTES, [measure(r) for r in ranks]) for label, measure in marks),
    ]


def _process(ranks: Sequence[RankSummary]) -> list[Column]:
    records = [r.record for r in ranks]
    return [
        column("host", Unit.NAME, [(record.host or None) if record else None for record in records], absent="-"),
        column("device", Unit.NAME, [(record.device or None) if record else None for record in records], absent="-"),
        column("steps", Unit.COUNT, [r.num_steps for r in ranks]),
        column("median step", Unit.NS, [r.median_step_ns for r in ranks]),
        column("host memory", Unit.BYTES, [r.host_rss_peak_bytes for r in ranks]),
        Column(
            label="ended",
            unit=Unit.TEXT,
            values=tuple(ending_text(record) for record in records),
            tones=tuple(_ending_tone(record) for record in records),
        ),
        column("message", Unit.NAME, [(record.message or None) if record else None for record in records], absent=""),
    ]


def _ending_tone(record: RankRecord | None) -> Tone:
    return Tone.FAILURE if record is not None and record.ending in FAILED_ENDINGS else Tone.PLAIN


def _recorded(columns: Sequence[Column]) -> list[Column]:
    """The columns in which something was recorded, and those that a reader expects even so."""
    expected = ("peak", "host", "device", "steps", "median step", "ended")
    return [one for one in columns if one.label in expected or any(value is not None for value in one.values)]
