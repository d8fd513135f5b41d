"""Sentences of the pages, as Markdown. Numbers in them were measured.

A name that comes from a run is put into a code span: no Markdown, TeX, emoji code or HTML works in there.
"""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from fsdp_dashboard.data import RunFacts
from fsdp_profile.analysis.collectives.clocks import Alignment
from fsdp_profile.analysis.collectives.cross_rank import Across
from fsdp_profile.analysis.collectives.cross_rank_summary import AcrossSummary
from fsdp_profile.analysis.collectives.exposure import CollectiveSummary
from fsdp_profile.analysis.collectives.stragglers import NeverJoined, Straggler
from fsdp_profile.analysis.collectives.traffic import StepTraffic
from fsdp_profile.analysis.time.breakdown import TimeBreakdown
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import Ending

_MAX_CODE_CHARS = 400
_MAX_PROSE_CHARS = 1000
_MAX_WORD_CHARS = 40
_PLAIN_WORD = re.compile(r"\(?(?:[^\W\d_]+(?:-[^\W\d_]+)*(?:'s)?|[+-]?\d[\d.,-]*|%)[.,;:)]*")
_NAMED_RANKS = 8

IN_FLIGHT = (
    "Ahead: gathered before the unit's own forward or backward began (prefetch). Held: gathered parameters and "
    "all-gather buffers in memory. Times are the host's."
)
GATHERS = (
    "Prefetch IMPLICIT: the wrapper's default in backward; EXPLICIT: asked for by the script. Ahead: from the issue of "
    "the all-gather to the unit's own forward or backward; gathered: to its reshard. Times are the host's."
)
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


def endings(run: RunFacts) -> list[str]:
    """Ranks that did not come to their end, one line per kind of ending; of an imported one the end is not known."""
    found: dict[tuple[str, int | None, str], list[int]] = {}
    for record in run.manifest.ranks:
        if record.ending not in (Ending.COMPLETED, Ending.IMPORTED):
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


def verdict_of_collectives(rank: int, found: CollectiveSummary, num_steps: int) -> str:
    """How much of the collective time of a rank had no compute beside it, per step and in all."""
    steps = "1 step" if num_steps == 1 else f"{num_steps:,} steps"
    total, exposed = found.total_ns, found.exposed_ns
    if exposed is None:
        return (
            f"**{ns_text(total // num_steps)}** of collective time per step ({ns_text(total)} over {steps} of rank "
            f"{rank}). How much of it had no compute beside it is **not recorded**: no kernels or operators were."
        )
    each = f"**{ns_text(exposed // num_steps)} of {ns_text(total // num_steps)}**"
    share = ratio_text(exposed / total if total else None)
    whole = f"{ns_text(exposed)} of {ns_text(total)} over {steps} of rank {rank}"
    return f"{each} of collective time per step had no compute beside it ({share}): {whole}."


def traffic(rank: int, found: StepTraffic | None) -> str:
    """What a step moves, as recorded, and what of it a rank sends if the transport works as a ring."""
    if found is None:
        why = "no complete step whose collectives are all of known size and group"
        return f"What a step sends is **not recorded**: {why}."
    steps = "1 complete step" if found.num_steps == 1 else f"the median of {found.num_steps:,} complete steps"
    return (
        f"A step sends **{bytes_text(found.wire_bytes)}** from rank {rank} if each collective is a ring (estimate), "
        f"for **{bytes_text(found.size_bytes)}** in whole arrays: {steps}."
    )


def host_bound(found: Iterable[TimeBreakdown]) -> str:
    """What the parts of a step's time mean, and why its host-bound time is not known where it is not."""
    meaning = (
        "Compute, exposed, copies and idle add up to the span. Overlapped: communication with compute beside it; "
        "copies: with neither beside them; "
    )
    reasons = dict.fromkeys(b.host_bound_not_recorded for b in found if b.host_bound_not_recorded is not None)
    if reasons:
        return f"{meaning}host-bound: not recorded, {'; '.join(reasons)}."
    return f"{meaning}host-bound: idle with nothing launched that waits."


def clocks(clock: Alignment) -> str:
    """How the ranks' clocks were put on one axis, or why they were not."""
    if clock.offset_ns is None:
        residual = "" if clock.residual_ns is None else f" (ends differ by {ns_text(clock.residual_ns)}, median)"
        return f"The clocks of the ranks are **not aligned**: {code(clock.reason)}{residual}."
    apart = [f"rank {rank} {_ahead(ns)}" for rank, ns in sorted(clock.offset_ns.items()) if ns]
    residual = f"ends of the same collective agree within {ns_text(clock.residual_ns)} (median)"
    if not apart:
        return f"The clocks of the ranks are the same; {residual}."
    lowest = min(clock.offset_ns)
    more = f" and {len(apart) - _NAMED_RANKS} more" if len(apart) > _NAMED_RANKS else ""
    named = ", ".join(apart[:_NAMED_RANKS])
    return f"Clocks against rank {lowest}: {named}{more}; after that {residual}."


def matched(found: Across | AcrossSummary) -> str:
    """How many collectives were matched across ranks, and why the others were not."""
    whole = found.num_matched + found.num_unmatched
    why = "; ".join(f"{count:,} not: {reason}" for reason, count in found.unmatched.items())
    pauses = ""
    if found.num_after_pause:
        pauses = (
            f" {ns_text(found.paused_wait_ns)} of the waits in {found.num_after_pause:,} of them are left out: the "
            "last rank was in a pause in which the capture wrote."
        )
    return (
        f"{found.num_matched:,} of {whole:,} collectives were matched across ranks{'; ' + why if why else ''}.{pauses}"
    )


def never_joined(lost: NeverJoined) -> str:
    """Which rank did not reach which collective, and whether it may have joined unseen."""
    unit = "" if lost.unit is None else f" of {code(unit_text(lost.unit))}"
    group = " ".join(word for word in (lost.group, lost.group_description) if word)
    where = f"step {lost.step}" + (f", group {code(group)}" if group else "")
    more = f", nor {lost.num_more:,} after it" if lost.num_more else ""
    ended = "; its recording ends before that" if lost.recording_ended else ""
    return f"Rank {lost.rank} never joined {code(lost.kind)} #{lost.index}{unit} ({where}){more}{ended}."


def straggler(worst: Straggler, num_matched: int) -> str:
    """The rank that cost most."""
    unit = "" if worst.worst_unit is None else f", mostly busy with {code(unit_text(worst.worst_unit))}"
    return (
        f"Rank {worst.rank} came last in **{worst.times_last:,} of {num_matched:,}** matched collectives and made "
        f"the others wait **{ns_text(worst.wait_caused_ns)}** in sum{unit}."
    )


def left_out(num_calls: int, num_stretches: int) -> str:
    """What a timeline was too full to draw; empty when nothing."""
    parts = [f"{num_calls:,} of the shortest collectives"] if num_calls else []
    parts += [f"{num_stretches:,} of the shortest exposed stretches"] if num_stretches else []
    return f"{' and '.join(parts)} are not drawn." if parts else ""


def _ahead(offset_ns: int) -> str:
    return f"{ns_text(abs(offset_ns))} {'ahead' if offset_ns > 0 else 'behind'}"
