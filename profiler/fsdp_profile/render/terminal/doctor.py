"""What can be recorded on a machine, line by line, and in one sentence."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from fsdp_profile.core.machine import Fact, State
from fsdp_profile.core.text import plain
from fsdp_profile.present.doctor import actions, state_prefix, verdict
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, sections
from fsdp_profile.render.terminal.values import sentence_lines, sentence_text

_STYLES: Final = {State.OK: "", State.LIMITED: WARNING, State.MISSING: FAILURE}


def doctor_report(found: Sequence[Fact], *, is_tried: bool) -> RenderableType:
    """The verdict, a line for each fact, then what to do."""
    todo = actions(found)
    return sections(
        [
            sentence_text(verdict(found, is_tried=is_tried), style="bold"),
            facts((fact.name, _line(fact)) for fact in found),
            sentence_lines(todo) if todo else None,
        ]
    )


def _line(fact: Fact) -> Text:
    style = _STYLES[fact.state]
    return Text(state_prefix(fact), style=style).append(plain(fact.found), style=QUIET if style else "")
