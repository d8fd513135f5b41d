"""Sentences of the pages, as Markdown. Numbers in them were measured.

A name that comes from a run is put into a code span: no Markdown, TeX, emoji code or HTML works in there.
"""

import re

from fsdp_dashboard.data import RunFacts
from fsdp_profile.analysis.compare import ComparedRun, Comparison
from fsdp_profile.analysis.memory import Peak
from fsdp_profile.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.schema import Ending, Strategy

_MAX_CODE_CHARS = 400
_NAMED_PARTS = 3
"""Categories named in a sentence."""
_NAMED_RANKS = 8

STEP_TIME = "From the end of the step before; the pause in which the recording is written is not part of it."


def code(text: str) -> str:
    """A name as a Markdown code span, in one line, cut when it is very long.

    >>> print(code("a`b"), code("<b>"))
    `` a`b `` `<b>`
    """
    line = "".join(c if c.isprintable() else " " for c in text)[:_MAX_CODE_CHARS].strip() or "(no name)"
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    pad = " " if longest else ""
    return f"{'`' * (longest + 1)}{pad}{line}{pad}{'`' * (longest + 1)}"


def verdict_of_run(run: RunFacts) -> str:
    """Where the memory of one run went."""
    worst = run.worst
    if worst is None or worst.peak is None:
        return f"{code(run.label)} has no allocator events of a training step, so its peak is **not recorded**."
    found = worst.peak
    who = f"Rank {found.rank}" if len(run.ranks) > 1 else "The rank"
    parts = list(found.by_category.items())[:_NAMED_PARTS]
    named = ", ".join(f"{category} ({ratio_text(size / found.allocated_bytes)})" for category, size in parts)
    return f"{who} peaks at **{bytes_text(found.allocated_bytes)}** in {where(found)}: mostly {named}."


def where(found: Peak) -> str:
    """Phase, step and unit of a peak."""
    unit = "" if found.unit_name is None else f", unit {code(unit_text(found.unit_name))} at work"
    return f"**{found.phase}** of step {found.step}{unit}"


def verdict_of_comparison(found: Comparison) -> list[str]:
    """What each run needs against the baseline, one sentence per run."""
    base = next(c for c in found.runs if c.run == found.baseline)
    strategies = [c.run.manifest.strategy for c in found.runs]
    has_names = len(set(strategies)) < len(strategies)
    return [_sentence(c, base, has_names=has_names) for c in found.runs if c is not base]


def _sentence(mine: ComparedRun, base: ComparedRun, *, has_names: bool) -> str:
    strategy, against = mine.run.manifest.strategy, base.run.manifest.strategy
    name, base_name = (
        f"{c.run.manifest.strategy} ({code(c.run.name)})" if has_names else str(c.run.manifest.strategy)
        for c in (mine, base)
    )
    needs = f"{name} needs **{bytes_text(mine.peak.allocated_bytes)}** at its peak, {base_name} "
    needs += f"**{bytes_text(base.peak.allocated_bytes)}**"
    if mine.saved_bytes == 0:
        return f"{needs}: no difference."
    amount = f"**{ratio_text(abs(mine.reduction_ratio))}** ({bytes_text(abs(mine.saved_bytes))})"
    if mine.saved_bytes < 0:
        return f"{needs}: {amount} more, not less."
    shards = strategy != against and strategy in (Strategy.FSDP1, Strategy.FSDP2, Strategy.HSDP)
    return f"{needs}: {'sharding saves' if shards else 'that saves'} {amount}."


def endings(run: RunFacts) -> list[str]:
    """Ranks that did not come to their end, one line per kind of ending."""
    found: dict[tuple[str, int | None, str], list[int]] = {}
    for record in run.manifest.ranks:
        if record.ending is not Ending.COMPLETED:
            found.setdefault((str(record.ending), record.exit_code, record.message), []).append(record.rank)
    return [
        f"{_ranks(ranks)} ended with {ending}"
        + ("" if exit_code is None else f", exit code {exit_code}")
        + (f": {code(message)}" if message else "")
        for (ending, exit_code, message), ranks in found.items()
    ]


def _ranks(ranks: list[int]) -> str:
    named = ", ".join(map(str, ranks[:_NAMED_RANKS]))
    more = f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {named}{more}"


def as_list(lines: list[str]) -> str:
    """Several lines as a Markdown list, one as it is."""
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def receipt_facts(run: RunFacts) -> list[tuple[str, str]]:
    """What recording cost, measured."""
    cost = run.manifest.receipt
    return [
        ("recorded", f"{cost.allocator_events:,} allocator, {cost.hook_events:,} hook events"),
        ("written", bytes_text(cost.raw_bytes)),
        ("time to write", f"{ns_text(cost.flush_ns)}, between steps"),
    ]
