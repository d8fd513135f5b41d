"""Compare a run with a baseline: which bytes grew, and which counts changed.

[Note: Noise]
Bytes and counts hardly vary between recordings of one script, but times do. So bytes and counts are always compared
with the baseline, and times only on request. More bytes are a breach only beyond a tolerance, which is the largest of
1 %, 64 KiB, and the variation of the baseline itself: from step to step after the first, from one recording to the next
where several are given, and on CPU the largest block that gloo's workers free at an arbitrary time. Each category is
taken where it is highest, not at the run's peak, because two moments of nearly the same height trade places from one
recording to the next. Counts per step have no tolerance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fsdp_profile.analysis.check.facts import CallKey, Facts, Measured
from fsdp_profile.analysis.check.result import Check, Verdict, not_recorded
from fsdp_profile.analysis.memory.ledger import TRANSIENT
from fsdp_profile.analysis.ranks.overview import step_durations_ns
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.core.words import label_of

TOLERANCE_RATIO: Final = 0.01
TOLERANCE_BYTES: Final = 64 << 10
MIN_TIMED_STEPS: Final = 3


def against_baseline(mine: Facts, bases: Sequence[Facts]) -> Iterator[Check]:
    """The run's bytes and counts against those of one or more recordings. See [Note: Noise]."""
    yield _bytes_against("baseline/peak", "peak", mine.peak, [b.peak for b in bases])
    if mine.reserved is not None or any(b.reserved is not None for b in bases):
        yield _bytes_against("baseline/reserved", "reserved", mine.reserved, [b.reserved for b in bases])
    for category in CATEGORIES:
        theirs = [b.by_category.get(category) for b in bases]
        if mine.by_category.get(category) or any(theirs):
            now = mine.by_category.get(category)
            found = _bytes_against(f"baseline/category/{category}", category.label, now, theirs)
            yield _with_unit(found, mine, bases[0], category)
    yield from _units(mine, bases)
    yield from _communicators(mine, bases)


def _bytes_against(name: str, what: str, mine: Measured | None, bases: Sequence[Measured | None]) -> Check:
    known = [base for base in bases if base is not None]
    if mine is None:
        mine = Measured(size_bytes=0, spread_bytes=0, rank=None) if known and "category" in name else None
    if mine is None:
        return not_recorded(name, 0, "bytes", f"{what}: not recorded in this run, but in the baseline")
    base = max((b.size_bytes for b in known), default=0)
    least = min((b.size_bytes for b in known), default=0)
    spread = max([base - least, *(b.spread_bytes for b in known)])
    limit = base + max(int(base * TOLERANCE_RATIO), TOLERANCE_BYTES, spread)
    change = mine.size_bytes - base
    is_over = mine.size_bytes > limit
    by = f" ({change / base:+.1%})" if base else ""
    message = f"{what} {bytes_text(mine.size_bytes)} against {bytes_text(base)}: {_signed(change)}{by}"
    return Check(
        name=name, verdict=Verdict.BREACH if is_over else Verdict.OK, measured=mine.size_bytes, limit=limit,
        unit="bytes", message=message, rank=mine.rank, baseline=base,
    )  # fmt: skip


def _with_unit(found: Check, mine: Facts, base: Facts, category: str) -> Check:
    """Add the unit that grew most to the message; transient categories depend on the moment and get no unit."""
    if found.verdict is Verdict.OK or Category(category) in TRANSIENT:
        return found
    after, before = mine.by_unit.get(category, {}), base.by_unit.get(category, {})
    moved = {unit: after.get(unit, 0) - before.get(unit, 0) for unit in {*after, *before}}
    unit = max(moved, key=lambda name: (moved[name], name or ""), default=None)
    change = (found.measured or 0) - (found.baseline or 0)
    if unit is None or not 0 < moved[unit] <= change:  # more than all of it: units of other names, not of more bytes
        return found
    message = f"{found.message}, most in unit {unit_text(unit)} ({_signed(moved[unit])})"
    return replace(found, message=message)


def _units(mine: Facts, bases: Sequence[Facts]) -> Iterator[Check]:
    """Units that are new or gone, whose number of gathers or reshards changed, or that keep more bytes."""
    names = dict.fromkeys([*mine.units, *(name for base in bases for name in base.units)])
    for name in names:
        theirs = [base.units[name] for base in bases if name in base.units]
        label = f"unit {unit_text(name)}"
        if name not in mine.units or not theirs:
            what = "is new" if name in mine.units else "is gone"
            there = [int(bool(theirs))]
            yield _count_check(f"baseline/unit/{unit_text(name)}", f"{label} {what}", int(name in mine.units), there)
            continue
        for field, what in (("gathers", "gathered"), ("reshards", "resharded")):
            counts = [getattr(base, field) for base in theirs]
            now = getattr(mine.units[name], field)
            if now is None or None in counts:
                continue
            message = f"{label} is {what} {_times(now)} per step, against {_times(counts[0])}"
            yield _count_check(f"baseline/unit/{unit_text(name)}/{field}", message, now, counts)
        sharded = Measured(size_bytes=mine.units[name].sharded_bytes, spread_bytes=0, rank=None)
        bytes_before = [Measured(size_bytes=base.sharded_bytes, spread_bytes=0, rank=None) for base in theirs]
        yield _bytes_against(f"baseline/unit/{unit_text(name)}/kept", f"{label} keeps", sharded, bytes_before)


def _communicators(mine: Facts, bases: Sequence[Facts]) -> Iterator[Check]:
    """Groups that are new, or whose number of collectives per step changed."""
    calls = [base.calls for base in bases]
    for key in dict.fromkeys([*mine.calls, *(key for base in calls for key in base)]):
        now, before = mine.calls.get(key, 0), [base.get(key, 0) for base in calls]
        where = f"communicator {key.group}"
        text = f"{where}: {_times(now)} {_kind(key)} {key.owner} per step, against {_times(before[0])}"
        if not any(c.group == key.group for base in calls for c in base):
            text = f"one more {where}: {_times(now)} {_kind(key)} {key.owner} per step, none in the baseline"
        yield _count_check(f"baseline/communicator/{key.group}/{key.kind}/{key.owner}", text, now, before)


def _count_check(name: str, message: str, now: float, before: Sequence[float]) -> Check:
    """A count is a breach where it lies outside the counts of the baseline recordings."""
    is_same = min(before) <= now <= max(before)
    return Check(
        name=name, verdict=Verdict.OK if is_same else Verdict.BREACH, measured=now, limit=max(before), unit="count",
        message=message, baseline=before[0],
    )  # fmt: skip


def slowdown(run: Run, bases: Sequence[Run], limit_ratio: float) -> Check:
    """The median step of the slowest rank against the baseline's, beyond the variation between steps."""
    mine, theirs = _step_times(run), [times for base in bases if (times := _step_times(base)) is not None]
    if mine is None or not theirs:
        why = f"step time: needs {MIN_TIMED_STEPS} complete steps after the first, so the limit cannot be checked"
        return not_recorded("max-slowdown", limit_ratio, "ns", why)
    medians = [float(np.median(times)) for times in theirs]
    base = max(medians)
    noise = max([*(float(np.ptp(times)) for times in theirs), base - min(medians)])
    limit = base + max(base * limit_ratio, noise)
    now = float(np.median(mine))
    message = (
        f"median step {ns_text(int(now))} against {ns_text(int(base))}: {now / base - 1:+.1%}; the baseline's own "
        f"steps vary by {ns_text(int(noise))}"
    )
    verdict = Verdict.BREACH if now > limit else Verdict.OK
    return Check(
        name="max-slowdown", verdict=verdict, measured=now, limit=limit, unit="ns", message=message, baseline=base
    )


def _step_times(run: Run) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """The complete steps after the first, of the rank with the slowest median."""
    times = [found for rank in run.ranks if len(found := step_durations_ns(run, rank=rank)[1:]) >= MIN_TIMED_STEPS]
    return max(times, key=lambda found: float(np.median(found)), default=None)


def _kind(key: CallKey) -> str:
    return label_of(CollectiveKind, key.kind)


def _times(count: float) -> str:
    return f"{count:g}x"


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes >= 0 else '-'}{bytes_text(abs(size_bytes))}"
