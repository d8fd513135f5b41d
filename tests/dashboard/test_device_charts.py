"""What stands around the ledger: lines over the stack, the device as one bar, where a step's time went."""

import re

import pytest
from builder import RunBuilder
from plotly.graph_objs import Figure

from fsdp_dashboard.charts.breakdown import breakdown_figure
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.charts.levels import MAX_RATIO
from fsdp_dashboard.charts.memory import MemoryPanel, memory_figure
from fsdp_dashboard.charts.waterfall import waterfall_figure, waterfall_parts
from fsdp_dashboard.data_memory import _levels
from fsdp_profile.analysis.breakdown import NO_LAUNCHES, TimeBreakdown
from fsdp_profile.analysis.steps import step_ledger
from fsdp_profile.analysis.waterfall import waterfall
from fsdp_profile.schema import Category

MIB = 1 << 20
MS = 1_000_000


def trace(figure, name):
    [found] = [t for t in figure["data"] if t["name"] == name]
    return found


def valid(figure):
    """Plotly's own check of every property."""
    Figure(**figure)
    return figure


def device_run():
    """Step 0 of 10 ms: 4 MiB of parameters from before, 8 MiB of activations from 2 to 6 ms; 20 MiB reserved."""
    return (
        RunBuilder()
        .set(device_type="cuda")
        .step(-1, 0, 10 * MS)
        .step(0, 10 * MS, 20 * MS)
        .alloc(at=MS, size=4 * MIB, category=Category.SHARDED_PARAM)
        .alloc(at=12 * MS, free=16 * MS, size=8 * MIB)
        .totals(reserved=20 * MIB, active=13 * MIB)
    )


def panel(run, *, title="small"):
    step = step_ledger(run, rank=0, step=0)
    when = {"start_ns": step.start_ns, "end_ns": step.end_ns}
    first, last = int(step.ledger.event[0]), int(step.ledger.event[-1])
    return MemoryPanel(title=title, step=step, levels=_levels(run, rank=0, first=first, last=last, **when))


# -- lines over the stack


def test_levels_are_those_of_the_step_and_begin_with_what_was_before_it():
    run = device_run().device_sample(9 * MS, device_used_bytes=1).device_sample(13 * MS, device_used_bytes=30 * MIB)
    run = run.device_sample(21 * MS, device_used_bytes=3).build()
    assert panel(run).levels.to_pylist() == [
        {"t_ns": at * MS, "active_bytes": active, "reserved_bytes": reserved, "device_used_bytes": used}
        for at, active, reserved, used in (
            (10, 13 * MIB, 20 * MIB, None),
            (12, 13 * MIB, 20 * MIB, None),
            (13, None, None, 30 * MIB),
            (16, 13 * MIB, 20 * MIB, None),
        )
    ]


def test_a_ledger_that_begins_with_nothing_has_no_level_before_its_first_event():
    run = RunBuilder().step(0, 0, 10 * MS).alloc(at=2 * MS, size=4).totals(reserved=8, active=4).build()
    assert panel(run).levels.column("t_ns").to_pylist() == [2 * MS]


def test_levels_are_lines_over_the_stack_to_the_end_of_the_step():
    run = device_run().device_sample(13 * MS, device_used_bytes=30 * MIB).build()
    figure = valid(memory_figure([panel(run)]))
    reserved, used = trace(figure, "reserved"), trace(figure, "device used")
    assert (reserved["x"].tolist(), reserved["y"].tolist()) == ([0.0, 2.0, 6.0, 10.0], [20.0] * 4)
    assert (used["x"].tolist(), used["y"].tolist(), used["mode"]) == ([3.0], [30.0], "lines+markers")
    assert trace(figure, "active")["line"]["shape"] == "hv"
    assert figure["layout"]["yaxis"]["range"] == [0, 30 * 1.3]
    assert figure["layout"]["meta"] == {"levels_above": {}}
    strips = legend_html(figure).split("</div>")
    assert re.findall(r"</span>([^<]+)</span>", strips[1]) == ["active", "reserved", "device used"]


def test_the_hover_tells_the_levels_above_the_categories():
    run = device_run().device_sample(13 * MS, device_used_bytes=30 * MIB).build()
    moments = [text.split("<br>")[:4] for text in trace(memory_figure([panel(run)]), "allocated")["customdata"]]
    allocator = ["reserved 20.00 MiB", "active 13.00 MiB"]
    assert moments[0] == [*allocator, "<b>allocated 4.00 MiB</b>", "FORWARD, no unit at work"]
    assert moments[1][:3] == [*allocator, "<b>allocated 12.00 MiB</b>"]
    assert moments[2] == ["device used 30.00 MiB", *allocator, "<b>allocated 4.00 MiB</b>"]


def test_the_label_of_the_peak_stands_above_the_lines_that_are_in_its_way():
    [label] = [a for a in memory_figure([panel(device_run().build())])["layout"]["annotations"] if a["showarrow"]]
    assert (label["text"], label["y"]) == ("<b>peak 12.00 MiB</b>", 12.0)
    assert (label["ayref"], label["ay"]) == ("y", pytest.approx(13 * 1.07))


def test_a_level_far_above_is_told_and_not_drawn():
    run = device_run().device_sample(13 * MS, device_used_bytes=12 * MIB * MAX_RATIO + 1).build()
    figure = memory_figure([panel(run)])
    assert "device used" not in {t["name"] for t in figure["data"]}
    assert figure["layout"]["meta"] == {"levels_above": {"device used": 12 * MIB * MAX_RATIO + 1}}
    assert trace(figure, "allocated")["customdata"][2].startswith("device used 48.00 MiB<br>")


def test_a_run_on_cpu_has_the_categories_alone():
    run = RunBuilder().step(0, 0, 10 * MS).alloc(at=MS, size=MIB).device_sample(2 * MS, host_rss_bytes=9).build()
    figure = memory_figure([panel(run)])
    assert [t["name"] for t in figure["data"]] == ["ACTIVATION", "allocated", "peak"]
    assert figure["layout"]["yaxis"]["range"] == [0, 1.3]


def test_of_several_runs_each_level_is_in_the_legend_once_and_only_the_own_peak_is_the_reference():
    bare = RunBuilder("bare").step(0, 0, 10 * MS).alloc(at=MS, size=MIB).build()
    one = panel(device_run().build())
    figure = valid(memory_figure([panel(bare), one, one]))
    lines = [t for t in figure["data"] if t["name"] == "reserved"]
    assert [(t["yaxis"], t["showlegend"]) for t in lines] == [("y2", True), ("y3", False)]
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert texts.count("highest of all: 12.00 MiB") == 1


# -- the device


def waterfall_run():
    return device_run().device_sample(
        12 * MS, device_used_bytes=90 * MIB, process_used_bytes=40 * MIB, device_total_bytes=100 * MIB
    )


def test_the_device_is_one_bar_whose_parts_add_up_to_what_is_used():
    figure = valid(waterfall_figure(waterfall(waterfall_run().build(), rank=0)))
    assert [(t["name"], t["x"], t["text"]) for t in figure["data"]] == [
        ("allocated", [12.0], [""]),
        ("held by a stream", [1.0], [""]),
        ("cached", [7.0], [""]),
        ("outside: this process", [20.0], ["20.00 MiB"]),
        ("outside: other processes", [50.0], ["50.00 MiB"]),
    ]
    assert sum(t["x"][0] for t in figure["data"]) == 90.0
    assert [s["x0"] for s in figure["layout"]["shapes"]] == [100.0]
    assert figure["layout"]["annotations"][0]["text"] == "<b>device used 90.00 MiB</b> of 100.00 MiB"
    assert figure["data"][1]["hovertemplate"] == (
        "<b>held by a stream</b> 1.00 MiB<br>1.1 % of 90.00 MiB<extra></extra>"
    )


def test_a_device_far_larger_than_what_is_used_is_only_told():
    run = device_run().device_sample(12 * MS, device_used_bytes=30 * MIB, device_total_bytes=1000 * MIB).build()
    figure = waterfall_figure(waterfall(run, rank=0))
    assert figure["layout"]["shapes"] == []
    assert figure["layout"]["xaxis"]["range"] == [0, pytest.approx(30 * 1.03)]
    assert figure["layout"]["annotations"][0]["text"] == "<b>device used 30.00 MiB</b> of 1000.00 MiB"


@pytest.mark.parametrize(
    ("sample", "parts"),
    [
        # No NVML: up to what is reserved.
        ({}, []),
        # NVML does not tell the processes apart.
        ({"device_used_bytes": 25 * MIB}, [("outside", 5 * MIB)]),
        # Sampled before the allocator grew: what does not add up is not drawn.
        ({"device_used_bytes": 15 * MIB, "process_used_bytes": 15 * MIB}, []),
        ({"device_used_bytes": 25 * MIB, "process_used_bytes": 15 * MIB}, [("outside", 5 * MIB)]),
    ],
)
def test_only_what_was_recorded_is_drawn(sample, parts):
    run = device_run()
    if sample:
        run.device_sample(12 * MS, **sample)
    inside = [("allocated", 12 * MIB), ("held by a stream", MIB), ("cached", 7 * MIB)]
    found = waterfall(run.build(), rank=0)
    assert waterfall_parts(found) == [*inside, *parts]
    if not sample:
        title = waterfall_figure(found)["layout"]["annotations"][0]["text"]
        assert title == "<b>reserved 20.00 MiB</b>, device used not recorded"


def test_nvml_alone_is_drawn_as_it_is():
    run = RunBuilder().set(device_type="cuda").device_sample(1, device_used_bytes=300, process_used_bytes=200).build()
    found = waterfall(run, rank=0)
    assert waterfall_parts(found) == [("outside: this process", 200), ("outside: other processes", 100)]
    bare = RunBuilder().set(device_type="cuda").device_sample(1, device_used_bytes=300).build()
    assert waterfall_parts(waterfall(bare, rank=0)) == [("device used", 300)]


# -- time


def parts_of_time(**more):
    known = {"compute_ns": 30 * MS, "communication_ns": 30 * MS, "exposed_ns": 20 * MS, "memory_ns": 5 * MS,
             "idle_ns": 35 * MS, "host_bound_ns": None, "host_bound_not_recorded": NO_LAUNCHES}  # fmt: skip
    return TimeBreakdown(span_ns=90 * MS, **{**known, **more})


def test_the_parts_of_each_step_add_up_to_its_span():
    known = parts_of_time(host_bound_ns=12 * MS, host_bound_not_recorded=None)
    figure = valid(breakdown_figure({3: parts_of_time(), 4: known}))
    assert [(t["name"], t["x"], t["y"]) for t in figure["data"]] == [
        ("compute", ["3", "4"], [30.0, 30.0]),
        ("exposed", ["3", "4"], [20.0, 20.0]),
        ("copies", ["3", "4"], [5.0, 5.0]),
        ("idle", ["3", "4"], [35.0, 35.0]),
    ]
    assert figure["layout"]["yaxis"]["range"] == [0, pytest.approx(99.0)]
    first, second = (text.split("<br>") for text in trace(figure, "idle")["customdata"])
    assert first == [
        "<b>step 3</b>, 90.00 ms",
        "compute 30.00 ms (33.3 %)",
        "exposed 20.00 ms (22.2 %)",
        "copies 5.00 ms (5.6 %)",
        "idle 35.00 ms (38.9 %)",
        "overlapped 10.00 ms",
    ]
    assert second[-1] == "host-bound 12.00 ms of the idle time"


def test_parts_that_no_step_has_are_not_drawn():
    figure = breakdown_figure({0: parts_of_time(memory_ns=0, idle_ns=40 * MS)})
    assert [t["name"] for t in figure["data"]] == ["compute", "exposed", "idle"]
