"""What grows step over step is named, what is born once is not."""

from builder import RunBuilder

from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded, Site, growth, kept_unsharded
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import SpanKind

STATE = Category.OPTIMIZER_STATE


def steps(num_steps: int) -> RunBuilder:
    """Steps of 100, each with a block that lives inside it."""
    run = RunBuilder().unit("a")
    for step in range(num_steps):
        run.step(step, 100 * step, 100 * step + 100)
        run.alloc(at=100 * step + 1, free=100 * step + 90, size=50)
    return run


def test_blocks_that_outlive_every_step_are_growth_and_their_site_is_named():
    run = steps(6)
    run.alloc(at=20, size=1000, category=STATE, operator="aten::zeros_like")
    for step in range(6):
        run.alloc(at=100 * step + 10, size=7, category=Category.ACTIVATION, operator="aten::clone")
        run.alloc(at=100 * step + 11, size=3, category=Category.ACTIVATION, operator="aten::stack", name="log", unit=0)
    [found] = growth(run.build(), rank=0)
    assert found == Growth(
        category=Category.ACTIVATION, bytes_per_step=10, first_bytes=20, last_bytes=60, steps=(1, 2, 3, 4, 5),
        sites=(
            Site(operator="aten::clone", name="", unit=-1, phase="FORWARD", bytes_per_step=7, num_blocks=4),
            Site(operator="aten::stack", name="log", unit=0, phase="FORWARD", bytes_per_step=3, num_blocks=4),
        ),
    )  # fmt: skip


def test_what_is_born_in_the_first_step_or_rises_and_falls_does_not_grow():
    run = steps(6)
    run.alloc(at=20, size=1000, category=STATE)
    for step in range(0, 6, 2):  # a buffer that lives one step longer, every other step
        run.alloc(at=100 * step + 50, free=100 * step + 150, size=9)
    assert growth(run.build(), rank=0) == []


def test_too_few_steps_say_nothing():
    run = steps(4)
    for step in range(4):
        run.alloc(at=100 * step + 10, size=7)
    assert growth(run.build(), rank=0) == []


def test_a_unit_kept_unsharded_by_a_reference_is_named_and_an_open_gather_is_not():
    run = steps(2).unit("b")
    run.span(0, SpanKind.UNSHARDED, 10, 40).alloc(at=10, free=190, size=16, category=Category.UNSHARDED_PARAM, unit=0)
    run.span(1, SpanKind.UNSHARDED, 10, 150).alloc(at=10, free=150, size=8, category=Category.UNSHARDED_PARAM, unit=1)
    assert kept_unsharded(run.build(), rank=0) == [KeptUnsharded(unit=0, name="a", step=0, size_bytes=16)]
