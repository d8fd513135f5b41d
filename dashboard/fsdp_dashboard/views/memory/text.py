"""Sentences on failed allocations, the device and growth, as Markdown. As in text.py."""

from typing import Final

from fsdp_dashboard.text import code
from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded
from fsdp_profile.analysis.memory.host_states import HostStates
from fsdp_profile.analysis.memory.postmortem import PostMortem, Remedy, Worth
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.core.schema import SETUP_STEP, TEARDOWN_STEP

WORTH: Final = "What each alone would save; they do not add up."
COMMUNICATORS: Final = (
    "Process groups that communicated, in order of their first collective. Each has a communicator, whose buffers are "
    "outside PyTorch's allocator; how large they are is not recorded."
)
POOLS: Final = "Cached: reserved, in no block; only allocations of the same stream and pool can use it."


def out_of_memory(found: PostMortem) -> str:
    """Who asked for how much, where, and what room there was."""
    asked = "did not get what it asked for, the error does not tell how much"
    if found.asked_bytes is not None:
        asked = f"asked for **{bytes_text(found.asked_bytes)}**"
    return f"**Out of memory.** Rank {found.rank} {asked}, in {_where(found)}. {_room(found)}"


def _where(found: PostMortem) -> str:
    then = found.then
    step = {SETUP_STEP: "the set-up", TEARDOWN_STEP: "the time after the last step"}.get(then.step, f"step {then.step}")
    unit = "" if then.unit_name is None else f", unit {code(unit_text(then.unit_name))} at work"
    return f"**{then.phase}** of {step}{unit}"


def _room(found: PostMortem) -> str:
    if found.device is None:
        return "How much was free is **not recorded**: the CPU allocator does not tell."
    largest = found.device.largest_free_bytes
    block = "the allocator's largest free block is **not recorded**"
    if largest is not None:
        block = f"the largest free block in the allocator's pools was **{bytes_text(largest)}**"
    free = "what the device had free is **not recorded**"
    if found.free_bytes is not None:
        free = f"the device had **{bytes_text(found.free_bytes)}** free"
    return f"{block[0].upper()}{block[1:]}, {free}."


def remedy(found: Remedy) -> str:
    """One way to need less, what it is worth, and how that is known."""
    worth = "estimate" if found.worth is Worth.ESTIMATE else "measured"
    enough = ", **enough**" if found.is_enough else ""
    head, separator, rest = found.action.partition(": ")
    # Settings are read as they are typed.
    head = code(head) if "=" in head else head
    return f"**{bytes_text(found.saves_bytes)}** ({worth}){enough}: {head}{separator}{rest}"


def caught(count: int) -> str:
    """Failed allocations after which the script went on."""
    what = "1 allocation" if count == 1 else f"{count:,} allocations"
    return f"{what} failed for want of memory and the script went on; `fsdp-profile show --json` has each."


def levels_above(levels: dict[str, int]) -> str:
    """Levels that a memory figure does not draw; empty when none."""
    named = " and ".join(f"{name} (up to {bytes_text(size)})" for name, size in levels.items())
    return f"Far above the figure, see the hover text: {named}." if named else ""


def device_moment(found: Waterfall) -> str:
    """When the waterfall was, and what of it does not fit."""
    if found.event is None:
        return "NVML's highest sample: the allocator's own totals are not recorded."
    parts = (found.outside_bytes, found.outside_this_process_bytes, found.other_processes_bytes)
    if any(size is not None and size < 0 for size in parts):
        return "NVML's nearest sample is from another moment than the allocator's event: they do not fit."
    return ""


def host_states(found: HostStates) -> str:
    """What is kept on the host under CPU offload."""
    each = ", ".join(f"{bytes_text(size)} {category}" for category, size in found.by_category.items())
    return (
        f"**On the host {bytes_text(found.size_bytes)}** after step {found.step}, not in the device's ledger: {each}; "
        f"{bytes_text(found.pinned_bytes)} of it pinned."
    )


def growth(found: Growth) -> str:
    """How much a category grows."""
    first, last = found.steps[0], found.steps[-1]
    ends = f"{bytes_text(found.first_bytes)} after step {first}, {bytes_text(found.last_bytes)} after step {last}"
    sites = "; these blocks outlived their step:" if found.sites else "."
    return f"{found.category} grows by **{bytes_text(found.bytes_per_step)} a step**: {ends}{sites}"


def kept(found: KeptUnsharded) -> str:
    """A unit that something keeps gathered."""
    return (
        f"{code(unit_text(found.name))}: **{bytes_text(found.size_bytes)}** of its gathered parameters are still in "
        f"memory at the end of step {found.step}, after its reshard; something refers to them."
    )
