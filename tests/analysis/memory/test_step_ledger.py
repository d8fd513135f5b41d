"""analysis.steps, as the figures use it."""

import numpy as np
import pytest
from builder import RunBuilder, small_step

from fsdp_profile.analysis.memory.step_ledger import step_ledger, units_at
from fsdp_profile.analysis.spans.recorded import spans_between
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.schema import NO_UNIT, NOT_FREED, SpanKind

MIB = 1 << 20
MS = 1_000_000


def test_step_ledger_begins_with_what_was_live_before_the_step():
    found = step_ledger(small_step().build(), rank=0, step=0)
    assert found.ledger.t_ns.tolist() == [10 * MS, 12 * MS, 18 * MS]
    assert found.ledger.allocated_bytes.tolist() == [MIB, 3 * MIB, MIB]
    assert found.ledger.by_category[Category.ACTIVATION].tolist() == [0, 2 * MIB, 0]
    assert found.ledger.event.tolist() == [0, 1, 2]
    assert found.units.tolist() == [NO_UNIT, 1, NO_UNIT]
    assert [(p.phase, p.start_ns) for p in found.phases] == [("FORWARD", 10 * MS), ("BACKWARD", 15 * MS)]


def test_step_ledger_of_a_recording_that_begins_with_the_step_starts_at_nothing():
    run = RunBuilder().step(0, 0, 10).alloc(at=3, size=4).build()
    found = step_ledger(run, rank=0, step=0)
    assert found.ledger.event.tolist() == [-1, 0]
    assert found.ledger.allocated_bytes.tolist() == [0, 4]


def test_step_ledger_names_the_steps_that_have_events():
    run = RunBuilder().step(0, 0, 10).step(1, 10, 20).alloc(at=3, size=4).build()
    with pytest.raises(InputError, match=r"step 1 \(steps with events: 0\)"):
        step_ledger(run, rank=0, step=1)


def test_units_at_is_the_innermost_open_span():
    run = small_step().build()
    moments = np.array([10, 11, 12, 13, 14, 15]) * MS
    assert units_at(run, rank=0, t_ns=moments).tolist() == [NO_UNIT, 0, 1, 1, 0, NO_UNIT]


def test_a_gather_issued_ahead_is_not_the_unit_at_work():
    builder = RunBuilder().step(0, 0, 10).unit("a").unit("b").span(1, SpanKind.BACKWARD, 1, 6)
    run = builder.span(0, SpanKind.ALL_GATHER, 2, 4, prefetched=True).span(0, SpanKind.ALL_GATHER, 4, 5).build()
    assert units_at(run, rank=0, t_ns=np.array([1, 2, 3, 4, 5])).tolist() == [1, 1, 1, 0, 1]


def test_spans_between_include_one_begun_before_and_end_the_open_ones():
    builder = RunBuilder().step(0, 0, 10).step(1, 10, 20).unit("a")
    builder.span(0, SpanKind.UNSHARDED, 5, NOT_FREED).span(0, SpanKind.FORWARD, 1, 4)
    spans = spans_between(builder.alloc(at=1, size=1).build(), rank=0, start_ns=10, end_ns=20)
    assert spans.select(["kind", "start_ns", "end_ns", "name"]).to_pylist() == [
        {"kind": "UNSHARDED", "start_ns": 5, "end_ns": 20, "name": "a"}
    ]
