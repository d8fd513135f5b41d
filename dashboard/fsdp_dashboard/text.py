"""Sentences of the pages, as Markdown. Numbers in them were measured.

A name that comes from a run is put into a code span: no Markdown, TeX, emoji code or HTML works in there.
"""

import re
import shlex
from pathlib import Path

from fsdp_dashboard.data import RunFacts
from fsdp_profile.analysis.compare.peaks import ComparedRun, Comparison
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, slowdown_text, unit_text
from fsdp_profile.core.schema import Strategy

_MAX_CODE_CHARS = 400
_MAX_PROSE_CHARS = 1000
_MAX_WORD_CHARS = 40
_PLAIN_WORD = re.compile(r"\(?(?:[^\W\d_]+(?:-[^\W\d_]+)*(?:'s)?|[+-]?\d[\d.,-]*|%)[.,;:)]*")
_NAMED_PARTS = 3
"""Categories named in a sentence."""

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


def file_name(label: str) -> str:
    """A run's label as the name of a file.

    >>> file_name("a/b c")
    'a_b_c'
    """
    return re.sub(r"[^\w.-]", "_", label, flags=re.ASCII).strip(".")[:80] or "run"


def path_word(path: Path) -> str:
    """A path as one word of a shell: below the folder the dashboard was started in, from there."""
    here = Path.cwd()
    return shell_word(str(path.relative_to(here) if path.is_relative_to(here) else path))


def shell_word(text: str) -> str:
    """A name as one word of a shell, in one line."""
    return shlex.quote("".join(c if c.isprintable() else "?" for c in text))


def prose(sentence: str) -> str:
    """A sentence with names from a run in it: words and numbers as they are, all other words as code spans.

    Markdown has no way to escape an address or the name of an emoji; in a code span all of them are text.

    >>> print(prose("Unit layers.3 keeps 1.5 MiB: <b> :smile: www.a.b are names."))
    Unit `layers.3` keeps 1.5 MiB: `<b> :smile: www.a.b` are names.
    """
    told: list[tuple[bool, list[str]]] = []
    for number, word in enumerate(sentence[:_MAX_PROSE_CHARS].split()):
        is_plain = _PLAIN_WORD.fullmatch(word) is not None and len(word) <= _MAX_WORD_CHARS
        is_plain = is_plain and not (number == 0 and re.fullmatch(r"\d+[.)]|[+-]", word))  # the mark of a list
        if not told or told[-1][0] is not is_plain:
            told.append((is_plain, []))
        told[-1][1].append(word)
    return " ".join(" ".join(words) if is_plain else _named(" ".join(words)) for is_plain, words in told)


def _named(words: str) -> str:
    """A code span; the sentence's own punctuation comes after it."""
    tail = re.search(r"(?:(?<=\))[.,;:]|[.,;])*$", words)
    end = len(words) if tail is None or tail.start() == 0 else tail.start()
    return code(words[:end]) + words[end:]


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


def as_list(lines: list[str]) -> str:
    """Several lines as a Markdown list, one as it is."""
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def receipt_facts(run: RunFacts) -> list[tuple[str, str]]:
    """What recording cost, measured."""
    cost = run.manifest.receipt
    if run.manifest.is_imported:
        return [("recorded", "by other means: cost not recorded"), ("imported", bytes_text(cost.raw_bytes))]
    return [
        ("recorded", f"{cost.allocator_events:,} allocator, {cost.hook_events:,} hook events"),
        ("written", bytes_text(cost.raw_bytes)),
        ("time to write", f"{ns_text(cost.flush_ns)}, between steps"),
        ("a recorded step", slowdown_text(cost.recorded_step_ns, cost.bare_step_ns, cost.num_bare_steps)),
    ]
