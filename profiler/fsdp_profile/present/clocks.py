"""How the clocks of the ranks were put on one axis."""

from typing import Final

from fsdp_profile.analysis.collectives.clocks import Alignment
from fsdp_profile.core.humanize import ns_text
from fsdp_profile.present.values import Sentence, say, strong

MAX_RANKS: Final = 8
"""Ranks whose clock is named."""


def clocks(clock: Alignment) -> Sentence:
    """By how much the clock of each rank differs from that of the lowest rank, or why this is not known."""
    if clock.offset_ns is None:
        residual = "" if clock.residual_ns is None else f" (ends differ by {ns_text(clock.residual_ns)}, median)"
        return say("The clocks of the ranks are ", strong("not aligned"), f": {clock.reason}{residual}.")
    agree = f"ends of the same collective agree within {ns_text(clock.residual_ns)} (median)"
    apart = [f"rank {rank} is {_offset(ns)}" for rank, ns in sorted(clock.offset_ns.items()) if ns]
    if not apart:
        return say(f"The clocks of the ranks are the same; {agree}.")
    more = f" and {len(apart) - MAX_RANKS:,} more differ" if len(apart) > MAX_RANKS else ""
    against = f"Clocks against rank {min(clock.offset_ns)}: {', '.join(apart[:MAX_RANKS])}{more}"
    return say(f"{against}; with these offsets removed, {agree}.")


def _offset(offset_ns: int) -> str:
    return f"{ns_text(abs(offset_ns))} {'ahead' if offset_ns > 0 else 'behind'}"
