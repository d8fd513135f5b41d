"""A failed allocation: who asked for how much, what room there was, where the other ranks were, what would help."""

from collections.abc import Sequence
from typing import Final

from fsdp_profile.analysis.memory.postmortem import OtherRank, PostMortem, Remedy, Worth
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present.memory import phase_text, step_text, unit_value, where
from fsdp_profile.present.values import Sentence, Table, Unit, column, name, say, strong, table

REMEDIES_NOTE: Final = "what each would save alone; the savings do not add up"


def out_of_memory(found: PostMortem) -> Sentence:
    """Who asked for how much, where, and what room there was."""
    asked = say("did not get what it asked for (the error does not say how much)")
    if found.asked_bytes is not None:
        asked = say("asked for ", strong(bytes_text(found.asked_bytes)))
    return say(
        strong("Out of memory."), f" Rank {found.rank} ", asked, ", in ", where(found.then), ", with ",
        strong(bytes_text(found.then.allocated_bytes)), " allocated. ", _room(found),
    )  # fmt: skip


def _room(found: PostMortem) -> Sentence:
    if found.device is None:
        return say("How much was free is ", strong("not recorded"), ": the CPU allocator does not report it.")
    largest = found.device.largest_free_bytes
    block = say("The allocator's largest free block is ", strong("not recorded"))
    if largest is not None:
        block = say("The largest free block in the allocator's pools was ", strong(bytes_text(largest)))
    if found.free_bytes is None:
        return say(block, "; what the device had free is ", strong("not recorded"), ".")
    return say(block, "; the device had ", strong(bytes_text(found.free_bytes)), " free.")


def others_table(others: Sequence[OtherRank]) -> Table:
    """Where the other ranks were when the allocation failed."""
    known = [other.allocated_bytes is not None for other in others]
    units = [unit_value(other.unit_name) if has else None for other, has in zip(others, known, strict=True)]
    return table(
        "The other ranks at that moment",
        [
            column("rank", Unit.COUNT, [other.rank for other in others]),
            column("allocated", Unit.BYTES, [other.allocated_bytes for other in others], follows=True),
            column("step", Unit.TEXT, [None if o.step is None else step_text(o.step) for o in others], follows=True),
            column("phase", Unit.TEXT, [None if o.phase is None else phase_text(o.phase) for o in others],
                   follows=True),
            column("active unit", Unit.NAME, units, follows=True),
        ],
    )  # fmt: skip


def failures_table(found: Sequence[PostMortem]) -> Table:
    """Every failed allocation."""
    return table(
        "Failed allocations",
        [
            column("rank", Unit.COUNT, [p.rank for p in found]),
            column("step", Unit.TEXT, [step_text(p.then.step) for p in found]),
            column("phase", Unit.TEXT, [phase_text(p.then.phase) for p in found]),
            column("active unit", Unit.NAME, [unit_value(p.then.unit_name) for p in found]),
            column("asked for", Unit.BYTES, [p.asked_bytes for p in found]),
            column("allocated", Unit.BYTES, [p.then.allocated_bytes for p in found]),
        ],
    )


def remedy(found: Remedy) -> Sentence:
    """One way to need less, what it would save, and how that is known."""
    worth = "estimate" if found.worth is Worth.ESTIMATE else "measured"
    enough = say(", ", strong("enough")) if found.is_enough else say()
    head, separator, rest = found.action.partition(": ")
    action = say(name(head) if "=" in head else head, separator, rest)
    return say(strong(bytes_text(found.saves_bytes)), f" ({worth})", enough, ": ", action)


def more_failures(found: Sequence[PostMortem]) -> Sentence:
    """How many allocations failed after the first one; empty where none did."""
    more = len(found) - 1
    plural = "s" if more != 1 else ""
    return say(f"{more:,} more failed allocation{plural}: see post_mortems in --json") if more > 0 else say()


def survived(count: int) -> Sentence:
    """Failed allocations after which the script went on."""
    what = "1 allocation" if count == 1 else f"{count:,} allocations"
    return say(f"{what} failed for lack of memory and the script went on; ", name("fsdp-profile show --json"),
               " lists each.")  # fmt: skip
