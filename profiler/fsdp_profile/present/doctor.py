"""What can be recorded on a machine."""

from collections.abc import Sequence

from fsdp_profile.core.machine import Fact, State
from fsdp_profile.present.values import Sentence, say


def verdict(found: Sequence[Fact], *, is_tried: bool) -> Sentence:
    """Whether a run can be recorded here."""
    missing = [fact.name for fact in found if fact.state is State.MISSING]
    if missing:
        return say(f"Nothing can be recorded here: {', '.join(missing)}.")
    tried = "tried" if is_tried else "not tried"
    limited = sum(fact.state is State.LIMITED for fact in found)
    rest = f"; {limited} things are limited" if limited > 1 else "; one thing is limited" if limited else ""
    return say(f"Runs can be recorded here ({tried}){rest}.")


def state_prefix(fact: Fact) -> str:
    """The state of a fact before what was found; '' where nothing is wrong."""
    return "" if fact.state is State.OK else f"{fact.state.label}: "


def actions(found: Sequence[Fact]) -> list[Sentence]:
    """What to do, one sentence for each fact that asks for something."""
    return [say(f"{fact.name}: {fact.action}") for fact in found if fact.action]
