"""Live bytes by the source line that allocated them."""

from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.memory.call_sites import ModuleBytes, SourceLine, modules_at, source_lines
from fsdp_profile.core.categories import Category
from fsdp_profile.render.terminal.sites import modules_report, source_lines_report

KIB = 1 << 10


def test_lines_hold_what_is_live_at_the_event_largest_first() -> None:
    run = RunBuilder()
    run.alloc(at=1, size=2 * KIB, site="models/gpt.py:12 forward")
    run.alloc(at=2, size=3 * KIB, site="models/gpt.py:12 forward", category=Category.TEMPORARY)
    run.alloc(at=3, size=4 * KIB, site="my code/train.py:40 main", category=Category.OPTIMIZER_STATE)
    run.alloc(at=4, size=1 * KIB).alloc(at=9, size=64 * KIB, site="train.py:50 main")
    lines = source_lines(run.build(), rank=0, event=3)
    assert lines == [
        SourceLine(file="models/gpt.py", line=12, function="forward", size_bytes=5 * KIB, num_blocks=2,
                   by_category={Category.TEMPORARY: 3 * KIB, Category.ACTIVATION: 2 * KIB}),
        SourceLine(file="my code/train.py", line=40, function="main", size_bytes=4 * KIB, num_blocks=1,
                   by_category={Category.OPTIMIZER_STATE: 4 * KIB}),
    ]  # fmt: skip
    page = printed(source_lines_report(lines, peak_bytes=10 * KIB), width=80)
    assert [line.rstrip() for line in page.splitlines()] == [
        "Source lines at the peak  90.0 % of the peak was allocated by a line of the",
        "script's own code",
        "   bytes   share  line                 function  blocks",
        "───────────────────────────────────────────────────────",
        "5.00 KiB  50.0 %  models/gpt.py:12     forward        2",
        "4.00 KiB  40.0 %  my code/train.py:40  main           1",
        "",
        "   bytes  categories",
        "────────────────────────────────────────────────────",
        "5.00 KiB  3.00 KiB temporaries, 2.00 KiB activations",
        "4.00 KiB  optimizer state",
    ]


def test_a_run_without_stacks_has_no_lines() -> None:
    assert source_lines(RunBuilder().alloc(at=1, size=1).build(), rank=0, event=0) is None
    assert source_lines_report(None, peak_bytes=1) is None


def test_modules_hold_what_their_own_forwards_allocated_recomputed_told_apart() -> None:
    run = RunBuilder()
    run.alloc(at=1, size=4 * KIB, module="layers.0.mlp")
    run.alloc(at=2, size=2 * KIB, module="layers.0.mlp", name="recomputed")
    run.alloc(at=3, size=7 * KIB, module="layers.0", category=Category.TEMPORARY).alloc(at=4, size=9 * KIB)
    modules = modules_at(run.build(), rank=0, event=3)
    assert modules == [
        ModuleBytes(module="layers.0.mlp", size_bytes=6 * KIB, activation_bytes=6 * KIB, recomputed_bytes=2 * KIB,
                    num_blocks=2),
        ModuleBytes(module="layers.0", size_bytes=7 * KIB, activation_bytes=0, recomputed_bytes=0, num_blocks=1),
    ]  # fmt: skip
    page = printed(modules_report(modules), width=80)
    assert [line.rstrip() for line in page.splitlines()] == [
        "Activations by module at the peak  allocated in the module's own forward,",
        "without the modules inside it",
        "activations  recomputed  all bytes  blocks  module",
        "────────────────────────────────────────────────────────",
        "   6.00 KiB    2.00 KiB   6.00 KiB       2  layers.0.mlp",
    ]
    assert modules_at(RunBuilder().alloc(at=1, size=1).build(), rank=0, event=0) is None
    assert modules_report(None) is None
