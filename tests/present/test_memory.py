"""The peak in words and tables: labels instead of codes, unknown always there, and one total."""

from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.memory.ledger import Peak, blocks_at, peak, peak_of_phases
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import SETUP_STEP, TEARDOWN_STEP, Phase
from fsdp_profile.present.memory import (
    NO_PEAK,
    blocks_table,
    categories_table,
    phases_table,
    steps_table,
    verdict,
    where,
)
from fsdp_profile.present.values import Mark
from fsdp_profile.render.terminal.values import grid_of

FOUND = Peak(rank=3, allocated_bytes=8, step=1, phase="BACKWARD", unit=1, unit_name="<b>", t_ns=1, event=1,
             by_category={Category.ACTIVATION: 6, Category.UNSHARDED_PARAM: 2})  # fmt: skip


def at(*, step: int, unit_name: str | None) -> Peak:
    return Peak(rank=0, allocated_bytes=1, step=step, phase="FORWARD", unit=-1, unit_name=unit_name, t_ns=1, event=1,
                by_category={Category.INPUT: 1})  # fmt: skip


def test_the_verdict_names_the_active_unit_and_the_labels():
    assert verdict(FOUND).text == (
        "Peak 8 B allocated on rank 3, in backward of step 1, active unit <b>: mostly activations (75.0 %), gathered "
        "parameters (25.0 %); 0.0 % is unknown."
    )
    assert [part.text for part in verdict(FOUND).parts if part.mark is Mark.NAME] == ["<b>"]
    assert verdict(None) is NO_PEAK


def test_the_time_around_the_steps_has_words():
    assert where(at(step=SETUP_STEP, unit_name=None)).text == "forward of the setup"
    assert where(at(step=TEARDOWN_STEP, unit_name="")).text == (
        "forward of the time after the last step, active unit (root)"
    )


def test_the_table_of_categories_ends_with_unknown_and_the_total():
    found = categories_table({Category.UNKNOWN: 3, Category.ACTIVATION: 1})
    assert found.rows() == [
        ("activations", "1 B", "25.0 %"),
        ("unknown", "3 B", "75.0 %"),
        ("total", "4 B", "100.0 %"),
    ]
    assert [line.split() for line in printed(grid_of(found), width=60).splitlines() if "─" not in line] == [
        ["category", "bytes", "share"],
        ["A", "activations", "1", "B", "25.0", "%"],
        ["?", "unknown", "3", "B", "75.0", "%"],
        ["total", "4", "B", "100.0", "%"],
    ]


def test_steps_phases_and_blocks_are_labelled():
    run = RunBuilder().unit("a").phase(Phase.FORWARD, 0, 5).phase(Phase.BACKWARD, 5, 10)
    run.alloc(at=1, size=4, unit=0, operator="aten::mm").alloc(at=6, size=2, category=Category.ALL_GATHER)
    built = run.build()
    found = peak(built, rank=0)
    assert steps_table([found], num_steps=1).rows() == [("0", "6 B", "backward", "-")]
    assert phases_table(peak_of_phases(built, rank=0)).rows() == [
        ("forward", "4 B", "0", "activations"),
        ("backward", "6 B", "0", "activations"),
    ]
    blocks = blocks_table(blocks_at(built, rank=0, event=found.event), found, {0: "a"}, max_rows=1)
    assert blocks.rows() == [("4 B", "activations", "a", "-", "aten::mm", "forward", "0", "to the end")]
    assert blocks.note == "1 of 2 live blocks, 66.7 % of the peak"
