"""What was found out about a machine, for those who look and for those who print it."""

from dataclasses import dataclass

from fsdp_profile.core.words import Word


class State(Word):
    """How much of the product a fact leaves."""

    OK = "ok"
    LIMITED = "limited"
    """Something is not recorded or not there; everything else works."""
    MISSING = "missing"
    """Nothing can be recorded here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One property of a machine that was checked."""

    name: str
    state: State
    found: str
    action: str = ""
    """What to do about it; '' where there is nothing to do."""
