from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.memory.ledger import Conservation, peak, peak_of_steps
from fsdp_profile.present.memory import MAX_STEPS
from fsdp_profile.render.terminal.memory import ledger, memory_report


def test_of_many_steps_the_highest_are_shown_and_said_to_be():
    b = RunBuilder()
    for step in range(MAX_STEPS + 1):
        b.step(step, step * 10, step * 10 + 10).alloc(at=step * 10, free=step * 10 + 5, size=100 - step)
    run = b.build()
    peaks = peak_of_steps(run, rank=0)
    text = printed(
        memory_report(peaks, peak=peak(run, rank=0), blocks=None, unit_names={}, law=None), width=80
    )  # fmt: skip
    assert "Peak of each step  the 12 highest of 13 steps" in text
    bars = [line.split()[0] for line in text.splitlines() if "forward  -" in line]
    assert bars == [str(step) for step in range(MAX_STEPS)]


def test_the_composition_of_every_step_sums_to_its_peak():
    run = RunBuilder().step(0, 0, 10).step(1, 10, 20).alloc(at=1, size=4).alloc(at=12, size=3).build()
    text = printed(
        memory_report(peak_of_steps(run, rank=0), peak=peak(run, rank=0), blocks=None, unit_names={}, law=None),
        width=80,
    )
    rows = [line.split() for line in text.splitlines()]
    assert ["A", "activations", "4", "B", "7", "B"] in rows
    assert ["?", "unknown", "0", "B", "0", "B"] in rows
    assert ["total", "4", "B", "7", "B"] in rows


def test_a_ledger_that_does_not_add_up_is_said():
    assert ledger(Conservation(num_events=9, category_errors=0, reported_errors=0)).plain == (
        "The ledger adds up at all 9 allocator events."
    )
    assert ledger(Conservation(num_events=9, category_errors=0, reported_errors=None)).plain == (
        "The ledger adds up at all 9 allocator events; the allocator's own total was not recorded."
    )
    assert ledger(Conservation(num_events=9, category_errors=2, reported_errors=1)).plain == (
        "The ledger does not add up: of 9 allocator events, the categories miss the sum at 2, "
        "the allocator's own total differs at 1."
    )
