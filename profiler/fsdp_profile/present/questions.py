"""The questions that a newcomer asks of a run, and their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsdp_profile.analysis.findings.questions import Answers, Gathering, Sharding, Unsharded
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text
from fsdp_profile.core.schema import Strategy
from fsdp_profile.present.memory import NO_PEAK, where
from fsdp_profile.present.stragglers import late_rank
from fsdp_profile.present.values import Sentence, joined, name, say, strong

_NAMED_UNITS: Final = 4
_RECORDED: Final = strong("Not recorded")
NO_BASELINE: Final = say(
    "Against DDP: ", strong("not measured"), "; choose a DDP run of the same model beside this one, or record both "
    "with ", name("fsdp-profile run --as ddp --as fsdp train.py"), ".",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One question and its answer."""

    question: str
    answer: Sentence
    page: str
    """The page of the dashboard that shows more."""


def answers(found: Answers, strategy: Strategy, *, saved: Sentence | None, num_ranks: int) -> list[Answer]:
    """All questions; `saved` is the sentence of a comparison with the baseline, None without one."""
    return [
        Answer(question="How high is the peak, and what is it made of?", answer=peak(found), page="memory"),
        Answer(question="Which units were unsharded then?", answer=unsharded(found, strategy), page="units"),
        Answer(
            question="What did sharding save, and why not more?",
            answer=sharding(found.sharding, strategy, saved),
            page="compare" if saved else "whatif",
        ),
        Answer(
            question="How much all-gather time was exposed?",
            answer=exposed(found.gathering, strategy),
            page="collectives",
        ),
        Answer(question="Which rank is late?", answer=late(found, num_ranks), page="ranks"),
    ]


def peak(found: Answers) -> Sentence:
    """How high, where, and the largest category."""
    at = found.peak
    if at is None:
        return NO_PEAK
    largest, size = next(iter(at.by_category.items()))
    share = ratio_text(size / at.allocated_bytes if at.allocated_bytes else None)
    return say(
        strong(bytes_text(at.allocated_bytes)), f" on rank {at.rank}, in ", where(at), "; the largest part is ",
        strong(largest.label), f", {bytes_text(size)} ({share}).",
    )  # fmt: skip


def unsharded(found: Answers, strategy: Strategy) -> Sentence:
    """The units that were gathered at the peak."""
    if found.peak is None:
        return say(_RECORDED, ": there is no peak.")
    if found.sharding is None:
        if strategy is Strategy.DDP:
            return say(strong("No unit is sharded"), ": under DDP every rank keeps all parameters.")
        return say(_RECORDED, ": no sharded unit was seen in this run.")
    if not found.unsharded:
        return say(strong("None"), ": no gathered parameters were in memory at the peak.")
    held = sum(one.size_bytes for one in found.unsharded)
    return say(_named(found.unsharded), ": ", strong(bytes_text(held)), " of gathered parameters.")


def _named(units: Sequence[Unsharded]) -> Sentence:
    named = joined([say(_unit(one.name), f" ({bytes_text(one.size_bytes)})") for one in units[:_NAMED_UNITS]], ", ")
    more = len(units) - _NAMED_UNITS
    return say(named, f" and {more:,} more") if more > 0 else named


def _unit(unit_name: str | None) -> Sentence:
    return say("parameters of no recorded unit") if unit_name is None else say(name(unit_text(unit_name)))


def sharding(found: Sharding | None, strategy: Strategy, saved: Sentence | None) -> Sentence:
    """What it saved, and what stands against that."""
    if found is None:
        if strategy in (Strategy.DDP, Strategy.NONE):
            return say(
                f"This run uses {strategy.label}, which sharded runs are compared against. Choose a sharded run "
                "beside it."
            )
        return saved or NO_BASELINE
    return say(
        saved or NO_BASELINE, f" Divided over {found.shards:,} ranks, parameters, gradients and optimizer state take ",
        strong(bytes_text(found.saved_states_bytes)), " less on each; gathered parameters and buffers take ",
        strong(bytes_text(found.transient_bytes)),
        f" back, and activations ({bytes_text(found.activation_bytes)}) are not divided.",
    )  # fmt: skip


def exposed(found: Gathering | None, strategy: Strategy) -> Sentence:
    """All-gather time that is not hidden behind compute."""
    if found is None:
        if strategy is Strategy.DDP:
            return say(strong("None"), ": DDP gathers no parameters.")
        return say(_RECORDED, ": no all-gather was recorded.")
    if found.exposed_ns is None:
        return say(
            f"All-gathers of rank {found.rank} took ", strong(ns_text(found.total_ns)), "; how much of it was exposed "
            "is ", strong("not recorded"), ", because no kernels or operators were recorded.",
        )  # fmt: skip
    share = ratio_text(found.exposed_ns / found.total_ns if found.total_ns else None)
    steps = "1 step" if found.num_steps == 1 else f"{found.num_steps:,} steps"
    return say(
        strong(f"{ns_text(found.exposed_ns)} of {ns_text(found.total_ns)}"),
        f" ({share}) was not hidden behind compute, over {steps} of rank {found.rank}.",
    )


def late(found: Answers, num_ranks: int) -> Sentence:
    """The rank that the others waited for."""
    if found.is_single_rank:
        return say("One rank only: there is no other to wait for." if num_ranks < 2 else (
            "Not recorded: only one rank has collectives."))  # fmt: skip
    return late_rank([one for one in (found.late, found.next_late) if one is not None], found.num_matched)
