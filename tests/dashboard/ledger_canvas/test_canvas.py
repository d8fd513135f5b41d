"""What the memory page's own drawing is sent: the rows, exactly; phases, units, levels and blocks; names as text."""

import numpy as np
import pytest
from builder import RunBuilder, small_step
from hypothesis import given
from hypothesis import strategies as st

from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.charts.panels import HEADROOM
from fsdp_dashboard.ledger_canvas import component
from fsdp_dashboard.ledger_canvas.panels import (
    MAX_RATIO,
    LedgerPanel,
    detail_data,
    ledger_data,
    legend_of,
    levels_above,
)
from fsdp_dashboard.ledger_canvas.wire import packed, unpacked
from fsdp_profile.analysis.memory import time_window
from fsdp_profile.analysis.memory.ledger import peak_of_steps, timeline
from fsdp_profile.analysis.memory.time_window import run_window, step_window
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NO_UNIT, Phase

MIB = 1 << 20
MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$"


def small():
    return small_step(name="weight", unit=1)


def of_step(run, *, step=0, title="small"):
    return LedgerPanel(title=title, time_window=step_window(run, rank=0, step=step))


def drawn(*panels, **how):
    return ledger_data(list(panels), **how)


def rows(panel):
    return {name: values.tolist() for name, values in unpacked(panel["packed"]).items()}


# -- the wire


@given(st.lists(st.tuples(st.integers(0, 1 << 52), st.integers(-1, 400)), min_size=1, max_size=200))
def test_columns_come_back_as_they_were(values):
    columns = {"a": np.array([v[0] for v in values]), "b": np.array([v[1] for v in values])}
    found = unpacked(packed(columns))
    assert {name: column.tolist() for name, column in found.items()} == {n: c.tolist() for n, c in columns.items()}


# -- one step


def test_a_step_is_sent_exactly_from_what_was_live_at_its_start():
    [panel] = drawn(of_step(small().build()))["panels"]
    assert rows(panel) == {
        "t": [0, 2 * MS, 8 * MS],
        "total": [MIB, 3 * MIB, MIB],
        "unit": [NO_UNIT, 1, NO_UNIT],
        "PARAM": [MIB, MIB, MIB],
        "ACTIVATION": [0, 2 * MIB, 0],
    }
    assert panel["packed"]["bin_events"] == 1
    assert (panel["begin"], panel["end"], panel["opens"]) == (0, 10 * MS, [0, 10 * MS])
    assert panel["phases"] == [["FORWARD", 0, 5 * MS, "forward"], ["BACKWARD", 5 * MS, 10 * MS, "backward"]]
    assert panel["units"] == {"0": "(root)", "1": "layers.0"}


def test_the_peak_is_marked_and_told_to_those_who_cannot_see_it():
    [panel] = drawn(of_step(small().build()))["panels"]
    assert panel["peak"] == {"t": 2 * MS, "bytes": 3 * MIB, "text": "peak 3.00 MiB", "clear_bytes": 3 * MIB}
    assert panel["alt"] == (
        "Allocated bytes of small by category, rank 0, step 0: peak 3.00 MiB after 2.00 ms in forward of step 0, "
        "active unit layers.0, most of it activations 2.00 MiB, parameters 1.00 MiB."
    )


def test_the_largest_blocks_have_the_time_of_their_lives():
    [panel] = drawn(of_step(small().build()))["panels"]
    assert panel["blocks"] == [
        [2 * MS, 8 * MS, "2.00 MiB activations, aten::empty"],
        [-9 * MS, 10 * MS + 1, "1.00 MiB parameters, weight, aten::empty"],
    ]


def test_of_many_blocks_the_largest_are_sent(monkeypatch):
    monkeypatch.setattr(time_window, "MAX_BLOCKS", 2)
    run = small().alloc(at=13 * MS, free=14 * MS, size=5).build()
    assert [text for *_, text in drawn(of_step(run))["panels"][0]["blocks"]] == [
        "2.00 MiB activations, aten::empty",
        "1.00 MiB parameters, weight, aten::empty",
    ]


def test_several_runs_share_one_scale_and_the_highest_is_named_where_it_is_not():
    big = RunBuilder("big").step(0, 0, 20 * MS).alloc(at=1, size=8 * MIB).build()
    found = drawn(of_step(big, title="big"), of_step(small().build()))
    assert found["axis_bytes"] == 8 * MIB * HEADROOM
    assert (found["highest_text"], found["highest_bytes"]) == ("highest of all: 8.00 MiB", 8 * MIB)
    assert [panel["names_highest"] for panel in found["panels"]] == [False, True]
    assert found["unit"] == {"name": "MiB", "bytes": MIB}
    assert [(code, label) for code, _, label in found["categories"]] == [
        ("PARAM", "parameters"), ("ACTIVATION", "activations")
    ]  # fmt: skip
    assert [panel["end"] for panel in found["panels"]] == [20 * MS, 10 * MS]


def test_the_view_opens_shortly_before_the_first_phase():
    run = RunBuilder().step(0, 0, 1000 * MS).phase(Phase.OTHER, 0, 400 * MS)
    run = run.phase(Phase.FORWARD, 400 * MS, 1000 * MS).alloc(at=1, size=4).build()
    assert drawn(of_step(run))["panels"][0]["opens"] == [382 * MS, 1000 * MS]


def test_a_recording_opens_shortly_before_anything_can_be_seen_of_it():
    run = RunBuilder().step(0, 900 * MS, 1000 * MS).alloc(at=0, size=4).alloc(at=800 * MS, size=1000).build()
    [whole] = drawn(LedgerPanel(title="late", time_window=run_window(run, rank=0)))["panels"]
    assert (whole["begin"], whole["opens"], whole["end"]) == (0, [794 * MS, 1000 * MS], 1000 * MS)


def test_a_long_step_is_sent_with_few_rows_that_all_existed(monkeypatch):
    monkeypatch.setattr(time_window, "MAX_ROWS", 100)
    builder = RunBuilder().step(0, 0, 100_000)
    for i in range(2_000):
        category = Category.ACTIVATION if i % 3 else Category.TEMPORARY
        builder.alloc(at=i * 10, free=i * 10 + 25, size=1 + (i * 7919) % 1000, category=category)
    run = builder.build()
    [panel] = drawn(of_step(run))["panels"]
    sent, ledger = unpacked(panel["packed"]), timeline(run, rank=0)
    states = set(zip(ledger.t_ns, ledger.allocated_bytes, *(ledger.by_category[c] for c in kinds()), strict=True))
    assert 33 < len(sent["t"]) <= 100
    assert set(zip(*(sent[name][1:].tolist() for name in ("t", "total", *map(str, kinds()))), strict=True)) <= states
    assert sent["total"].max() == ledger.allocated_bytes.max()
    assert panel["packed"]["bin_events"] == -(-4_001 // len(sent["t"]))


def kinds():
    return (Category.ACTIVATION, Category.TEMPORARY)


# -- levels


def device_run():
    return small().set(device_type="cuda").totals(reserved=20 * MIB, active=4 * MIB)


def test_levels_are_columns_and_samples_and_the_label_of_the_peak_stands_above_what_is_in_its_way():
    panel = of_step(device_run().device_sample(13 * MS, device_used_bytes=9 * MIB).build())
    found = drawn(panel)
    sent = rows(found["panels"][0])
    assert (sent["active"], sent["reserved"]) == ([4 * MIB] * 3, [20 * MIB] * 3)
    assert found["panels"][0]["device"] == [[3 * MS, 9 * MIB]]
    assert [(name, is_sampled) for name, _, is_sampled in found["levels"]] == [("active", False), ("device used", True)]
    assert [name for name, *_ in found["levels_above"]] == ["reserved"]
    assert levels_above([panel]) == {"reserved": 20 * MIB}
    assert found["axis_bytes"] == 9 * MIB * HEADROOM
    assert found["panels"][0]["peak"]["clear_bytes"] == 4 * MIB


def test_a_level_at_the_limit_is_drawn():
    run = small().totals(reserved=MAX_RATIO * 3 * MIB, active=4 * MIB).build()
    assert [name for name, *_ in drawn(of_step(run))["levels"]] == ["active", "reserved"]


def test_the_legend_has_categories_and_then_lines():
    strips = legend_html(legend_of([of_step(device_run().build())])).split("</div>")
    assert ["activations" in strip for strip in strips] == [True, False, False]
    assert ">active<" in strips[1]
    assert "reserved" not in strips[1]  # far above: told, not drawn


# -- the whole recording


def test_a_whole_recording_has_its_steps_and_the_peak_of_each():
    run = small().step(1, 20 * MS, 30 * MS).alloc(at=22 * MS, free=23 * MS, size=MIB).build()
    found = drawn(LedgerPanel(title="all", time_window=run_window(run, rank=0)))
    [panel] = found["panels"]
    assert found["x_title"] == "s since the recording began"
    assert panel["steps"] == [[-1, 0, 10 * MS], [0, 10 * MS, 20 * MS], [1, 20 * MS, 30 * MS]]
    peaks = unpacked(panel["peaks"])
    assert peaks["step"].tolist() == [0, 1]
    assert peaks["total"].tolist() == [p.allocated_bytes for p in peak_of_steps(run, rank=0)] == [3 * MIB, 2 * MIB]
    assert rows(panel)["t"] == [1 * MS, 12 * MS, 18 * MS, 22 * MS, 23 * MS]


def test_finer_rows_of_a_part_begin_with_what_was_live_at_its_start():
    run = small().build()
    panel = LedgerPanel(title="all", time_window=run_window(run, rank=0))
    found = time_window.detail(run, rank=0, start_ns=13 * MS, end_ns=19 * MS)
    told = detail_data(panel, found, number=0, window=(13 * MS, 19 * MS))
    assert rows(told)["total"] == [3 * MIB, MIB]
    assert (told["key"], told["phases"][0]) == ("0:13000000:19000000", ["FORWARD", 10 * MS, 15 * MS, "forward"])
    assert told["blocks"][0][2] == "2.00 MiB activations, aten::empty"


@pytest.mark.parametrize("windows", [(), (None,), ((1, 5),)])
def test_the_window_of_a_link_goes_along(windows):
    found = drawn(of_step(small().build()), windows=windows)
    assert found["windows"] == [[1, 5] if windows and windows[0] else None]


def test_names_go_as_they_are_for_the_script_sets_them_as_text():
    [panel] = drawn(of_step(small().unit(HOSTILE).build(), title=HOSTILE))["panels"]
    assert panel["title"] == panel["units"]["2"] == HOSTILE
    script = component.script()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "import("):
        assert way not in script
