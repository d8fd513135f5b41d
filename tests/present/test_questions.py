"""The answers to a newcomer's questions, word for word; what was not measured says so."""

from dataclasses import replace

from fsdp_dashboard.values import markdown
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.findings.questions import Answers, Gathering, Sharding, Unsharded
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Strategy
from fsdp_profile.present import questions
from fsdp_profile.present.memory import NO_PEAK
from fsdp_profile.present.questions import NO_BASELINE
from fsdp_profile.present.values import say, strong

MIB, MS = 1 << 20, 1_000_000
FSDP2, DDP = Strategy.FSDP2, Strategy.DDP
FOUND = Answers(
    peak=Peak(rank=3, allocated_bytes=8 * MIB, step=1, phase="BACKWARD", unit=1, unit_name="<b>", t_ns=1, event=1,
              by_category={Category.ACTIVATION: 6 * MIB, Category.PARAM: 2 * MIB}),
    unsharded=tuple(Unsharded(name=name, size_bytes=MIB) for name in ("a", "", None, "c", "d", "e")),
    sharding=Sharding(shards=4, states_bytes=2 * MIB, transient_bytes=MIB, activation_bytes=6 * MIB),
    gathering=Gathering(rank=1, total_ns=4 * MS, exposed_ns=MS, num_steps=1),
    late=Straggler(rank=2, times_last=3, wait_caused_ns=5 * MS, worst_unit="", worst_unit_late_ns=MS, worst_step=0,
                   worst_step_late_ns=MS),
    next_late=None,
    num_matched=4,
    is_single_rank=False,
)  # fmt: skip
BARE = Answers(
    peak=None,
    unsharded=(),
    sharding=None,
    gathering=None,
    late=None,
    next_late=None,
    num_matched=0,
    is_single_rank=False,
)


def exposed(*args):
    return markdown(questions.exposed(*args))


def late(*args):
    return markdown(questions.late(*args))


def sharding(*args):
    return markdown(questions.sharding(*args))


def unsharded(*args):
    return markdown(questions.unsharded(*args))


def test_each_question_has_its_answer_and_its_page():
    found = questions.answers(FOUND, FSDP2, saved=say("It saves ", strong("1"), "."), num_ranks=4)
    assert [(one.page, markdown(one.answer)) for one in found] == [
        ("memory", "**8.00 MiB** on rank 3, in **backward** of step 1, active unit `<b>`; the largest part is "
                   "**activations**, 6.00 MiB (75.0 %)."),
        ("units", "`a` (1.00 MiB), `(root)` (1.00 MiB), parameters of no recorded unit (1.00 MiB), `c` (1.00 MiB) and "
                  "2 more: **6.00 MiB** of gathered parameters."),
        ("compare", "It saves **1**. Divided over 4 ranks, parameters, gradients and optimizer state take **6.00 MiB** "
                    "less on each; gathered parameters and buffers take **1.00 MiB** back, and activations (6.00 MiB) "
                    "are not divided."),
        ("collectives", "**1.00 ms of 4.00 ms** (25.0 %) was not hidden behind compute, over 1 step of rank 1."),
        ("ranks", "**Rank 2** came last in 3 of 4 matched collectives, and the other ranks waited **5.00 ms** for it "
                  "in total; its slowest unit was `(root)`."),
    ]  # fmt: skip
    assert [one.page for one in questions.answers(FOUND, FSDP2, saved=None, num_ranks=4)][2] == "whatif"


def test_no_rank_is_blamed_where_another_is_nearly_as_late():
    other = replace(FOUND.late, rank=0, times_last=1, wait_caused_ns=3 * MS)
    assert late(replace(FOUND, next_late=other), 4) == (
        "**No rank stands out** in 4 matched collectives: rank 2 came last in 3 (5.00 ms of waiting); rank 0 came last "
        "in 1 (3.00 ms of waiting)."
    )
    assert late(replace(FOUND, next_late=replace(other, wait_caused_ns=2 * MS)), 4).startswith("**Rank 2** came last")


def test_what_was_not_recorded_says_so():
    assert questions.peak(BARE) is NO_PEAK
    assert unsharded(BARE, FSDP2) == "**Not recorded**: there is no peak."
    assert unsharded(replace(FOUND, sharding=None), FSDP2) == "**Not recorded**: no sharded unit was seen in this run."
    assert questions.sharding(None, FSDP2, None) is NO_BASELINE
    assert exposed(None, FSDP2) == "**Not recorded**: no all-gather was recorded."
    assert exposed(Gathering(rank=0, total_ns=MS, exposed_ns=None, num_steps=2), FSDP2) == (
        "All-gathers of rank 0 took **1.00 ms**; how much of it was exposed is **not recorded**, because no kernels "
        "or operators were recorded."
    )
    assert late(BARE, 2) == "**Not recorded**: no collective could be matched between the ranks."


def test_what_is_nothing_is_none():
    assert unsharded(replace(FOUND, unsharded=()), FSDP2).startswith("**None**: no gathered parameters")
    assert unsharded(replace(FOUND, sharding=None), DDP).startswith("**No unit is sharded**: under DDP")
    assert sharding(None, DDP, None).startswith("This run uses DDP, which sharded runs are compared against.")
    assert exposed(None, DDP) == "**None**: DDP gathers no parameters."
    assert late(replace(FOUND, late=None), 2) == (
        "**No rank was late**: all ranks reached each of the 4 matched collectives together."
    )
    assert late(replace(BARE, is_single_rank=True), 1) == "One rank only: there is no other to wait for."
