"""What can be recorded on a machine, line by line, and in one sentence."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from fsdp_profile.capture.machine import Fact, State
from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, lines, sections

_STYLES = {State.OK: "", State.LIMITED: WARNING, State.MISSING: FAILURE}


def doctor_report(found: Sequence[Fact], *, is_tried: bool) -> RenderableType:
    """The verdict, a line for each fact, then what to do."""
    rows = [(fact.name, _line(fact)) for fact in found]
    actions = [f"{fact.name}: {fact.action}" for fact in found if fact.action]
    return sections([Text(verdict(found, is_tried=is_tried), style="bold"), facts(rows),
                     lines(actions) if actions else None])  # fmt: skip


def verdict(found: Sequence[Fact], *, is_tried: bool) -> str:
    """Whether a run can be recorded here."""
    missing = [fact.name for fact in found if fact.state is State.MISSING]
    if missing:
        return f"Nothing can be recorded here: {', '.join(missing)}."
    tried = "tried" if is_tried else "not tried"
    limited = sum(fact.state is State.LIMITED for fact in found)
    rest = f"; {limited} things are limited" if limited > 1 else "; one thing is limited" if limited else ""
    return f"Runs can be recorded here ({tried}){rest}."


def _line(fact: Fact) -> Text:
    word = "" if fact.state is State.OK else f"{fact.state}: "
    style = _STYLES[fact.state]
    return Text(word, style=style).append(plain(fact.found), style=QUIET if style else "")
