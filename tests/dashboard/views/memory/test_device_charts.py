"""What stands around the ledger: lines over the stack, the device as one bar, where a step's time went."""

import pytest
from builder import RunBuilder
from plotly.graph_objs import Figure

from fsdp_dashboard.views.collectives.breakdown_chart import breakdown_figure
from fsdp_dashboard.views.memory.waterfall_chart import waterfall_figure
from fsdp_profile.analysis.memory.device_waterfall import waterfall
from fsdp_profile.analysis.time.breakdown import NO_LAUNCHES, TimeBreakdown
from fsdp_profile.core.categories import Category
from fsdp_profile.present.device_waterfall import waterfall_parts

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
        .alloc(at=MS, size=4 * MIB, category=Category.PARAM)
        .alloc(at=12 * MS, free=16 * MS, size=8 * MIB)
        .totals(reserved=20 * MIB, active=13 * MIB)
    )


# -- the device


def waterfall_run():
    return device_run().device_sample(
        12 * MS, device_used_bytes=90 * MIB, process_used_bytes=40 * MIB, device_total_bytes=100 * MIB
    )


def test_the_device_is_one_bar_whose_parts_add_up_to_what_is_used():
    figure = valid(waterfall_figure(waterfall(waterfall_run().build(), rank=0)))
    assert [(t["name"], t["x"], t["text"]) for t in figure["data"]] == [
        ("allocated", [12.0], [""]),
        ("freed but held by a stream", [1.0], [""]),
        ("cached", [7.0], [""]),
        ("outside PyTorch, this process", [20.0], ["20.00 MiB"]),
        ("outside PyTorch, other processes", [50.0], ["50.00 MiB"]),
    ]
    assert sum(t["x"][0] for t in figure["data"]) == 90.0
    assert [s["x0"] for s in figure["layout"]["shapes"]] == [100.0]
    assert figure["layout"]["annotations"][0]["text"] == "<b>device used 90.00 MiB</b> of 100.00 MiB"
    assert figure["data"][1]["hovertemplate"] == (
        "<b>freed but held by a stream</b> 1.00 MiB<br>1.1 % of 90.00 MiB<extra></extra>"
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
        ({"device_used_bytes": 25 * MIB}, [("outside PyTorch", 5 * MIB)]),
        # Sampled before the allocator grew: what does not add up is not drawn.
        ({"device_used_bytes": 15 * MIB, "process_used_bytes": 15 * MIB}, []),
        ({"device_used_bytes": 25 * MIB, "process_used_bytes": 15 * MIB}, [("outside PyTorch", 5 * MIB)]),
    ],
)
def test_only_what_was_recorded_is_drawn(sample, parts):
    run = device_run()
    if sample:
        run.device_sample(12 * MS, **sample)
    inside = [("allocated", 12 * MIB), ("freed but held by a stream", MIB), ("cached", 7 * MIB)]
    found = waterfall(run.build(), rank=0)
    assert waterfall_parts(found) == [*inside, *parts]
    if not sample:
        title = waterfall_figure(found)["layout"]["annotations"][0]["text"]
        assert title == "<b>reserved 20.00 MiB</b>, device used not recorded"


def test_nvml_alone_is_drawn_as_it_is():
    run = RunBuilder().set(device_type="cuda").device_sample(1, device_used_bytes=300, process_used_bytes=200).build()
    found = waterfall(run, rank=0)
    assert waterfall_parts(found) == [("outside PyTorch, this process", 200), ("outside PyTorch, other processes", 100)]
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
