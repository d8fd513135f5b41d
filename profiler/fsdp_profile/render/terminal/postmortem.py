"""A run that ran out of memory opens with this: who asked for how much, what filled the rank, what would help."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from fsdp_profile.analysis.memory.postmortem import PostMortem
from fsdp_profile.present import postmortem as present
from fsdp_profile.render.terminal.memory import composition
from fsdp_profile.render.terminal.palette import FAILURE
from fsdp_profile.render.terminal.parts import heading, note, sections
from fsdp_profile.render.terminal.values import sentence_lines, sentence_text, table_grid
from fsdp_profile.render.terminal.waterfall import waterfall_report

MAX_OTHERS: Final = 16
MAX_REMEDIES: Final = 6


def postmortem_report(found: Sequence[PostMortem]) -> RenderableType | None:
    """The first failed allocation, and how many more there were; None where none failed."""
    if not found:
        return None
    first = found[0]
    more = present.more_failures(found)
    return sections(
        [
            sentence_text(present.out_of_memory(first), style=FAILURE),
            composition(first.then, title="Live at that moment:"),
            waterfall_report(first.device, when="when the allocation failed"),
            _others(first),
            _remedies(first) if first.remedies else None,
            note(more.text) if more else None,
        ]
    )


def _others(found: PostMortem) -> RenderableType | None:
    drawn = table_grid(present.others_table(found.others[:MAX_OTHERS]))
    if drawn is None or len(found.others) <= MAX_OTHERS:
        return drawn
    return Group(drawn, note(f"the first {MAX_OTHERS} of {len(found.others)}"))


def _remedies(found: PostMortem) -> RenderableType:
    shown = found.remedies[:MAX_REMEDIES]
    return Group(heading("Remedies", present.REMEDIES_NOTE), sentence_lines(map(present.remedy, shown)))
