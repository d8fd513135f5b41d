"""What a strategy prescribes is what is recorded: gathers, reshards, reductions of every unit in every step.

Columns: all-gathers, reduce-scatters, forwards and backwards of blocks.0, blocks.1 and the root in one step. A unit
reshards as often as it gathers. The root is not resharded after forward, so it gathers once where blocks do twice.
"""

from collections import Counter
from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.schema import SpanKind
from fsdp_profile.ingest.tables import numbers, strings

ONCE = [1, 1, 1]
EXPECTED = {
    "plain": ([2, 2, 1], ONCE, ONCE, ONCE),
    "no-reshard": (ONCE, ONCE, ONCE, ONCE),
    # The recomputation runs inside the block's forward hooks' reach: no forward of the unit, no third gather.
    "checkpoint": ([2, 2, 1], ONCE, ONCE, ONCE),
    # Two micro-batches, the first without gradient sync: gathered twice as often, reduced once.
    "accumulate": ([4, 4, 2], ONCE, [2, 2, 2], [2, 2, 2]),
    # Two forwards, then one backward over both: the last block is gathered again for each of them.
    "two-forwards": ([3, 4, 1], ONCE, [2, 2, 2], [1, 2, 1]),
    # blocks.0 runs twice in a forward.
    "shared": ([4, 2, 1], ONCE, [2, 1, 1], [2, 1, 1]),
    # A forward under no_grad before the step; the root stays gathered from it.
    "eval": ([3, 3, 1], ONCE, [2, 2, 2], ONCE),
    # unshard() and reshard() of the root by hand, before the forward: the first time that is before step 0.
    "manual": ([2, 2, 2], ONCE, ONCE, ONCE),
    "compile": ([2, 2, 1], ONCE, ONCE, ONCE),
    "fsdp1": ([2, 2, 1], ONCE, ONCE, ONCE),
    "fsdp1-grad-op": (ONCE, ONCE, ONCE, ONCE),
    "fsdp1-flat": ([2, 2, 1], ONCE, ONCE, ONCE),
    "fsdp1-no-sync": ([4, 4, 2], ONCE, [2, 2, 2], [2, 2, 2]),
}
STEPS = 3
KINDS = (SpanKind.ALL_GATHER, SpanKind.REDUCE_SCATTER, SpanKind.FORWARD, SpanKind.BACKWARD)


def counts_of(run: Run, *, rank: int, step: int) -> dict[SpanKind, list[int]]:
    spans = run.table("unit_spans", rank=rank)
    rows = zip(numbers(spans, "unit").tolist(), strings(spans, "kind"), numbers(spans, "step").tolist(), strict=True)
    counts = Counter((unit, kind) for unit, kind, at in rows if at == step)
    return {kind: [counts[unit, kind.value] for unit in range(3)] for kind in SpanKind}


@pytest.mark.parametrize("mode", EXPECTED)
def test_units_do_in_every_step_what_the_strategy_prescribes(tmp_path: Path, mode: str) -> None:
    done = fsdp_profile(
        "run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), str(SCRIPTS / "variants.py"), mode
    )
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert run.manifest.warnings == []
    for rank in run.ranks:
        assert strings(run.table("units", rank=rank), "name").tolist() == ["blocks.0", "blocks.1", ""]
        law = ledger.conservation(run, rank=rank)
        assert (law.category_errors, law.reported_errors) == (0, 0)
        peaks = ledger.peak_of_steps(run, rank=rank)
        assert [peak.step for peak in peaks] == list(range(STEPS))
        assert all(peak.unknown_ratio <= 0.01 for peak in peaks)
        for step in range(1 if mode == "manual" else 0, STEPS):
            found = counts_of(run, rank=rank, step=step)
            assert tuple(found[kind] for kind in KINDS) == EXPECTED[mode]
            assert found[SpanKind.RESHARD] == found[SpanKind.ALL_GATHER] == found[SpanKind.UNSHARDED]
