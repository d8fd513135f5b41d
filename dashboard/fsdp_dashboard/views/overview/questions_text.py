"""The questions of a newcomer and their answers, as Markdown. As in text.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsdp_dashboard.text import code, where
from fsdp_dashboard.values import markdown
from fsdp_profile.analysis.findings.questions import Answers, Gathering, Sharding, Unsharded
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import Strategy
from fsdp_profile.present.stragglers import late_rank

_NAMED_UNITS: Final = 4
NO_BASELINE: Final = (
    "Against DDP: **not measured**; choose a DDP run of the same model beside this one, or record both with "
    "`fsdp-profile run --as ddp --as fsdp train.py`."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """One question, its answer, and the page that shows it."""

    question: str
    answer: str
    page: str
    """The page's name, as its file is called."""
    link: str


def told(found: Answers, strategy: Strategy, *, saved: str | None, num_ranks: int) -> list[Told]:
    """All questions; `saved` is the sentence of a comparison with the baseline, None without one."""
    return [
        Told(question="How high is the peak, and what is it?", answer=peak(found), page="memory", link="Memory"),
        Told(
            question="Which units were unsharded then?",
            answer=unsharded(found, strategy),
            page="units",
            link="Units",
        ),
        Told(
            question="What did sharding save, and why not more?",
            answer=sharding(found.sharding, strategy, saved),
            page="compare" if saved else "whatif",
            link="Compare" if saved else "What if",
        ),
        Told(
            question="How much all-gather time was exposed?",
            answer=exposed(found.gathering, strategy),
            page="collectives",
            link="Collectives",
        ),
        Told(question="Which rank is late?", answer=late(found, num_ranks), page="ranks", link="Ranks"),
    ]


def peak(found: Answers) -> str:
    """How high, where, and the largest category."""
    at = found.peak
    if at is None:
        return "**Not recorded**: no allocator events of a training step."
    largest, size = next(iter(at.by_category.items()))
    share = ratio_text(size / at.allocated_bytes if at.allocated_bytes else None)
    return (
        f"**{bytes_text(at.allocated_bytes)}** on rank {at.rank}, in {where(at)}; the largest part is **{largest}**, "
        f"{bytes_text(size)} ({share})."
    )


def unsharded(found: Answers, strategy: Strategy) -> str:
    """The units that were gathered at the peak."""
    if found.peak is None:
        return "**Not recorded**: there is no peak."
    if found.sharding is None:
        if strategy is Strategy.DDP:
            return "**None is sharded**: under DDP every rank keeps all parameters whole."
        return "**Not recorded**: no sharded unit was seen in this run."
    if not found.unsharded:
        return "**None**: no gathered parameters were in memory at the peak."
    held = sum(one.size_bytes for one in found.unsharded)
    return f"{_named(found.unsharded)}: **{bytes_text(held)}** of gathered parameters."


def _named(units: Sequence[Unsharded]) -> str:
    named = [f"{_unit(one.name)} ({bytes_text(one.size_bytes)})" for one in units[:_NAMED_UNITS]]
    more = len(units) - _NAMED_UNITS
    return ", ".join(named) + (f" and {more:,} more" if more > 0 else "")


def _unit(name: str | None) -> str:
    return "a unit not recorded" if name is None else code(unit_text(name))


def sharding(found: Sharding | None, strategy: Strategy, saved: str | None) -> str:
    """What it saved, and what stands against that."""
    if found is None:
        if strategy in (Strategy.DDP, Strategy.NONE):
            return f"This run is {strategy}: what sharded runs are measured against. Choose one beside it."
        return saved or NO_BASELINE
    why = (
        f"Divided over {found.shards:,} ranks, states take **{bytes_text(found.saved_states_bytes)}** less on each; "
        f"gathered parameters and buffers take **{bytes_text(found.transient_bytes)}** back, and activations "
        f"({bytes_text(found.activation_bytes)}) are not divided."
    )
    return f"{saved or NO_BASELINE} {why}"


def exposed(found: Gathering | None, strategy: Strategy) -> str:
    """All-gather time without compute beside it."""
    if found is None:
        none = "no all-gather was recorded"
        return f"**None**: {strategy} gathers nothing." if strategy is Strategy.DDP else f"**Not recorded**: {none}."
    if found.exposed_ns is None:
        return (
            f"All-gathers of rank {found.rank} took **{ns_text(found.total_ns)}**; how much of it was exposed is "
            "**not recorded**: no kernels or operators were."
        )
    share = ratio_text(found.exposed_ns / found.total_ns if found.total_ns else None)
    steps = "1 step" if found.num_steps == 1 else f"{found.num_steps:,} steps"
    return (
        f"**{ns_text(found.exposed_ns)} of {ns_text(found.total_ns)}** ({share}) had no compute beside it, over "
        f"{steps} of rank {found.rank}."
    )


def late(found: Answers, num_ranks: int) -> str:
    """The rank that the others waited for."""
    if found.is_single_rank:
        return "One rank only: there is no other to wait for." if num_ranks < 2 else "**Not recorded**: one rank only."
    return markdown(late_rank([one for one in (found.late, found.next_late) if one is not None], found.num_matched))
