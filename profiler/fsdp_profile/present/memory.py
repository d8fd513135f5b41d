"""The memory of a rank: its peak in one sentence, and the peak by category, step, phase and block."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from fsdp_profile.analysis.memory.ledger import Conservation, Peak
from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import NOT_FREED, SETUP_STEP, TEARDOWN_STEP, Phase
from fsdp_profile.core.words import label_of
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.present.values import Sentence, Table, Unit, Value, column, name, say, strong, table

TOTAL: Final = "total"
NO_UNIT_TEXT: Final = "-"
"""In a table, where no unit is active."""
NO_PEAK: Final = say("The peak is ", strong("not recorded"), ": no allocator events of a training step.")
MAX_STEPS: Final = 12
"""Steps that are listed one by one; of more, the highest."""
_NAMED: Final = 3
"""Categories named in a sentence."""


def phase_text(phase: str) -> str:
    """The label of a phase's code."""
    return label_of(Phase, phase)


def step_text(step: int) -> str:
    """A step in a cell.

    >>> step_text(3), step_text(SETUP_STEP), step_text(TEARDOWN_STEP)
    ('3', 'set-up', 'after the last step')
    """
    return {SETUP_STEP: "set-up", TEARDOWN_STEP: "after the last step"}.get(step, str(step))


def unit_value(unit_name: str | None) -> str:
    """The active unit in a cell."""
    return NO_UNIT_TEXT if unit_name is None else unit_text(unit_name)


def where(found: Peak) -> Sentence:
    """Phase, step and active unit of a moment, as a part of a sentence."""
    step = {SETUP_STEP: "the setup", TEARDOWN_STEP: "the time after the last step"}.get(
        found.step, f"step {found.step}"
    )
    place = say(strong(phase_text(found.phase)), f" of {step}")
    return place if found.unit_name is None else say(place, ", active unit ", name(unit_text(found.unit_name)))


def verdict(found: Peak | None) -> Sentence:
    """How high the peak is, where, and what it is made of."""
    if found is None:
        return NO_PEAK
    parts = list(found.by_category.items())[:_NAMED]
    named = ", ".join(f"{c.label} ({ratio_text(size / found.allocated_bytes)})" for c, size in parts)
    return say(
        "Peak ", strong(bytes_text(found.allocated_bytes)), f" allocated on rank {found.rank}, in ", where(found),
        f": mostly {named}; {ratio_text(found.unknown_ratio)} is unknown.",
    )  # fmt: skip


def with_unknown(by_category: Mapping[Category, int]) -> dict[Category, int]:
    """The same categories in the same order; UNKNOWN is last and always there."""
    found = dict(by_category)
    unknown = found.pop(Category.UNKNOWN, 0)
    return {**found, Category.UNKNOWN: unknown}


def categories_table(by_category: Mapping[Category, int]) -> Table:
    """Bytes and share of each category at one moment, largest first, and their total."""
    rows = with_unknown(by_category)
    total = sum(by_category.values())
    sizes = [*rows.values(), total]
    return table(
        "Peak by category",
        [
            column("category", Unit.CATEGORY, [*rows, TOTAL]),
            column("bytes", Unit.BYTES, sizes),
            column("share", Unit.RATIO, [size / total if total else 0.0 for size in sizes], follows=True),
        ],
        num_totals=1,
    )


def highest(step_peaks: Sequence[Peak]) -> list[Peak]:
    """At most MAX_STEPS of the peaks, the highest ones, in their order."""
    by_size = sorted(step_peaks, key=lambda p: -p.allocated_bytes)[:MAX_STEPS]
    return [p for p in step_peaks if p in by_size]


def steps_table(shown: Sequence[Peak], *, num_steps: int) -> Table:
    """The peak of each step and where it is."""
    some = f"the {len(shown)} highest of {num_steps} steps" if len(shown) < num_steps else "all steps on one scale"
    return table(
        "Peak of each step",
        [
            column("step", Unit.COUNT, [p.step for p in shown]),
            column("peak", Unit.BYTES, [p.allocated_bytes for p in shown]),
            column("phase", Unit.TEXT, [phase_text(p.phase) for p in shown], follows=True),
            column("active unit", Unit.NAME, [unit_value(p.unit_name) for p in shown], follows=True),
        ],
        note=some,
    )


def step_categories_table(shown: Sequence[Peak]) -> Table:
    """Categories in rows, steps in columns: what the peak of each step is made of."""
    held = {category for p in shown for category in p.by_category} | {Category.UNKNOWN}
    rows = [category for category in CATEGORIES if category in held]
    return table(
        "",
        [
            column("category", Unit.CATEGORY, [*rows, TOTAL]),
            *(
                column(f"step {p.step}", Unit.BYTES, [*(p.by_category.get(c, 0) for c in rows), p.allocated_bytes])
                for p in shown
            ),
        ],
        num_totals=1,
    )


def phases_table(peaks: Mapping[str, Peak]) -> Table:
    """The peak of each phase, and what most of it is."""
    return table(
        "Peak of each phase",
        [
            column("phase", Unit.TEXT, [phase_text(phase) for phase in peaks]),
            column("peak", Unit.BYTES, [p.allocated_bytes for p in peaks.values()]),
            column("step", Unit.TEXT, [step_text(p.step) for p in peaks.values()], follows=True),
            column("largest part", Unit.CATEGORY, [next(iter(p.by_category), "") for p in peaks.values()],
                   follows=True),
        ],
        note="over the training steps; setup is the time before them",
    )  # fmt: skip


def blocks_table(blocks: pa.Table, peak: Peak, unit_names: Mapping[int, str], *, max_rows: int) -> Table:
    """The largest blocks of `allocations` that are live at a peak: how large, what for, whose, and how long."""
    shown = blocks.slice(0, max_rows)
    sizes = numbers(shown, "size_bytes").tolist()
    starts, ends = numbers(shown, "start_ns").tolist(), numbers(shown, "end_ns").tolist()
    units = [unit_value(unit_names.get(unit)) for unit in numbers(shown, "unit").tolist()]
    share = ratio_text(sum(sizes) / peak.allocated_bytes if peak.allocated_bytes else None)
    return table(
        "Largest blocks at the peak",
        [
            column("bytes", Unit.BYTES, sizes),
            column("category", Unit.CATEGORY, [Category(code) for code in strings(shown, "category")], follows=True),
            column("unit", Unit.NAME, units, follows=True),
            column("tensor", Unit.NAME, [text or "-" for text in strings(shown, "name").tolist()], follows=True),
            column("allocated by", Unit.NAME, [text or "-" for text in strings(shown, "operator").tolist()],
                   follows=True),
            column("in phase", Unit.TEXT, [phase_text(phase) for phase in strings(shown, "phase").tolist()]),
            column("in step", Unit.TEXT, [step_text(step) for step in numbers(shown, "step").tolist()], follows=True),
            column("lives", Unit.TEXT, [_life(a, b) for a, b in zip(starts, ends, strict=True)], follows=True),
        ],
        note=f"{len(sizes)} of {blocks.num_rows:,} live blocks, {share} of the peak",
    )  # fmt: skip


def _life(start_ns: int, end_ns: int) -> str:
    return "to the end" if end_ns == NOT_FREED else ns_text(end_ns - start_ns)


def marks_table(summary: RankSummary, step_peaks: Sequence[Peak], *, device_total_bytes: int | None) -> Table | None:
    """The other high-water marks of a rank: set-up, first step, the allocator's, the device's; None without any."""
    peak, first = summary.peak, step_peaks[0] if step_peaks else None
    before = "before the first forward"
    if peak is not None and (summary.setup_peak_bytes or 0) > peak.allocated_bytes:
        before += ": higher than in training"
    rows: list[tuple[str, int | None, str]] = [("set-up", summary.setup_peak_bytes, before)]
    if first is not None:
        which = "the first recorded step" if first.step else "the first step"
        rows.append((f"step {first.step}", first.allocated_bytes, which))
    if peak is not None:
        rows.append(("training", peak.allocated_bytes, f"step {peak.step}: the peak above"))
    held = (
        ("reserved", summary.reserved_peak_bytes, "by the caching allocator"),
        ("device used", summary.device_used_peak_bytes, "by all processes on the device"),
        ("device size", device_total_bytes, ""),
    )
    rows += [row for row in held if row[1] is not None]
    if all(size is None for _, size, _ in rows):
        return None
    return table(
        "High-water marks",
        [
            column("mark", Unit.TEXT, [mark for mark, _, _ in rows]),
            column("bytes", Unit.BYTES, [size for _, size, _ in rows]),
            column("what it is", Unit.TEXT, [meaning for _, _, meaning in rows]),
        ],
        note=f"rank {summary.rank}",
    )


def conservation(law: Conservation) -> Sentence:
    """Whether the categories sum to the allocator's own total."""
    own = "" if law.reported_errors is not None else "; the allocator's own total was not recorded"
    if not has_errors(law):
        return say(f"The ledger adds up at all {law.num_events:,} allocator events{own}.")
    return say(
        f"The ledger does not add up: of {law.num_events:,} allocator events, the categories miss the sum at "
        f"{law.category_errors:,}, the allocator's own total differs at {law.reported_errors or 0:,}{own}."
    )


def has_errors(law: Conservation) -> bool:
    """Whether there is an event at which the ledger does not add up."""
    return bool(law.category_errors + (law.reported_errors or 0))


def categories_text(by_category: Mapping[Category, int]) -> str:
    """Sizes and labels of categories, one after the other: '4.00 MiB parameters, 1.00 MiB inputs'."""
    return ", ".join(f"{bytes_text(size)} {category.label}" for category, size in by_category.items())


def largest(by_category: Mapping[Category, int]) -> Value:
    """The category with most bytes, for a cell."""
    return next(iter(by_category), "")
