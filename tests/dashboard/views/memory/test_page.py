"""The device and growth on the memory page, the post-mortem on the overview; how an imported run ended."""

import json
from dataclasses import replace

import pytest
from builder import RunBuilder

from fsdp_dashboard.text import code
from fsdp_dashboard.values import markdown
from fsdp_profile.analysis.memory.postmortem import Remedy, Worth, post_mortems
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import SETUP_STEP, TEARDOWN_STEP, CollectiveKind, Ending, Phase, SpanKind
from fsdp_profile.present.postmortem import out_of_memory, remedy

MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


def said(app):
    return "\n".join(block.value for block in app.markdown)


def figures(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def table(app, column):
    """The table that begins with a column."""
    return next(frame.value for frame in app.dataframe if frame.value.columns[0] == column)


def has_table(app, column):
    return any(frame.value.columns[0] == column for frame in app.dataframe)


def failed(run, *, at=6, event=1, asked=64 * MIB, free=3 * MIB):
    return run.row("ooms", t_ns=at, event=event, asked_bytes=asked, device_free_bytes=free, stream=0)


# -- the device


@pytest.mark.parametrize("query", [{}, {"step": "all"}])
def test_the_memory_page_shows_the_device_at_the_peak(opened, tmp_path, query, on_device):
    app = opened(on_device(tmp_path / "d").build().path, page="memory", **query)
    assert "##### Device, rank 0 at the peak · `d`" in said(app)
    [device] = figures(app)
    assert [(t["name"], t["x"]) for t in device["data"]][-1] == ("outside PyTorch, other processes", [50.0])
    assert dict(table(app, "level").set_index("level")["bytes (MiB)"]) == {
        "allocated": 12,
        "+ freed but held by a stream": 1,
        "+ cached": 7,
        "= reserved": 20,
        "+ outside PyTorch": 70,
        "   of it this process": 20,
        "   of it other processes": 50,
        "= device used": 90,
        "device size": 100,
    }
    assert table(app, "stream").to_dict("records") == [
        {"stream": "7", "pool": "0,0", "reserved (MiB)": 4.0, "in blocks (MiB)": 0.0, "held by a stream (MiB)": 0.0,
         "cached (MiB)": 4.0, "largest free (MiB)": 4.0}
    ]  # fmt: skip


def test_what_is_kept_on_the_host_stands_beside_the_device(opened, tmp_path, on_device):
    run = on_device(tmp_path / "d")
    run.row("host_states", t_ns=50, step=0, category="OPTIMIZER_STATE", is_pinned=True, size_bytes=8 * MIB)
    app = opened(run.build().path, page="memory")
    assert [info.value for info in app.info] == [
        "**On the host 8.00 MiB** after step 0, not on the device: 8.00 MiB optimizer state; 8.00 MiB of it pinned."
    ]
    assert not opened(on_device(tmp_path / "e").build().path, page="memory").info


def test_a_run_on_cpu_has_no_device_at_all(opened, make_run):
    app = opened(make_run("fsdp2").path, page="memory")
    assert "Device" not in said(app)
    assert not has_table(app, "level")
    assert not has_table(app, "communicator")
    assert not figures(app)


def test_the_communicators_stand_beside_the_device_in_order_of_first_use(opened, tmp_path, on_device):
    run = on_device(tmp_path / "d").step(SETUP_STEP, 0, 4).step(0, 4, 2 * 10**9)
    shard = {"group": "1", "group_description": "mesh_shard", "group_size": 8}
    run.collective(CollectiveKind.ALL_GATHER, 3_000_004, 3_000_009, **shard)
    run.collective(CollectiveKind.ALL_GATHER, 1, 2, group="0", group_description="default_pg", step=SETUP_STEP)
    run.collective(CollectiveKind.REDUCE_SCATTER, 7, 8, **shard)
    app = opened(run.build().path, page="memory")
    assert table(app, "communicator").to_dict("records") == [
        {"communicator": "default_pg 0", "ranks": 2, "first used": "set-up, after 0.0 us"},
        {"communicator": "mesh_shard 1", "ranks": 8, "first used": "step 0, after 0.0 us"},
    ]
    assert any("how large they are is not recorded" in caption.value for caption in app.caption)


def test_a_device_run_whose_collectives_have_no_group_names_no_communicator(opened, tmp_path, on_device):
    run = on_device(tmp_path / "d").collective(CollectiveKind.ALL_GATHER, 7, 8).build()
    assert not has_table(opened(run.path, page="memory"), "communicator")


def test_levels_far_above_the_figure_are_told(opened, tmp_path, on_device, ledger):
    run = on_device(tmp_path / "d").device_sample(8, device_used_bytes=91 * MIB)
    app = opened(run.build().path, page="memory")
    assert "Far above the figure, see the hover text: device used (up to 91.00 MiB)." in [c.value for c in app.caption]
    drawn = ledger(app)
    assert [(code, label) for code, _, label in drawn["categories"]] == [
        ("ACTIVATION", "activations"),
        ("BUCKET", "DDP buckets"),
    ]
    assert [name for name, *_ in drawn["levels"]] == ["active", "reserved"]
    assert [name for name, *_ in drawn["levels_above"]] == ["device used"]


def test_what_does_not_fit_is_said(opened, tmp_path, on_device):
    app = opened(on_device(tmp_path / "d", process=19 * MIB).build().path, page="memory")
    assert any("the levels do not add up" in caption.value for caption in app.caption)
    levels = table(app, "level").set_index("level")["bytes (MiB)"]
    assert (levels["+ outside PyTorch"], levels["   of it this process"]) == (70, -1)


# -- growth


def growing(path, *, unit="a"):
    run = RunBuilder(path.name, path=path).unit(unit)
    for step in range(6):
        run.step(step, 100 * step, 100 * step + 100)
        run.alloc(at=100 * step + 10, size=MIB, operator="aten::clone", unit=0)
    run.span(0, SpanKind.UNSHARDED, 10, 40)
    return run.alloc(at=10, free=190, size=4 * MIB, category=Category.UNSHARDED_PARAM, unit=0).build()


@pytest.mark.parametrize("query", [{}, {"step": "all"}])
def test_growth_is_a_warning_with_its_sites(opened, tmp_path, query):
    app = opened(growing(tmp_path / "g").path, page="memory", **query)
    assert [warning.value for warning in app.warning] == [
        "Live bytes of activations grow by **1.00 MiB a step**: 2.00 MiB after step 1, 6.00 MiB after step 5.",
        "`a`: **4.00 MiB** of its gathered parameters are still in memory at the end of step 0, after its reshard; "
        "something refers to them.",
    ]
    assert table(app, "per step (MiB)").to_dict("records") == [
        {"per step (MiB)": 1.0, "blocks": 4, "phase": "forward", "unit": "a", "tensor": "-",
         "allocated by": "aten::clone"}
    ]  # fmt: skip
    assert "These blocks outlived their step." in [caption.value for caption in app.caption]


def test_a_steady_run_has_no_growth(opened, make_run):
    app = opened(make_run("fsdp2").path, page="memory")
    assert not app.warning
    assert "Growth" not in said(app)


# -- out of memory


def test_the_overview_opens_with_what_filled_the_device(opened, tmp_path, on_device):
    run = failed(failed(on_device(tmp_path / "oom").set(complete=False)), at=7, asked=None).rank(1).unit("layers.0")
    run.alloc(at=5, size=3 * MIB).alloc(at=7, size=MIB)
    app = opened(run.build().path)
    assert app.error[0].value == (
        "**Out of memory.** Rank 0 asked for **64.00 MiB**, in **forward** of step 0, active unit `layers.0`, with "
        "**12.00 MiB** allocated. The largest free block in the allocator's pools was **4.00 MiB**; the device had "
        "**3.00 MiB** free."
    )
    live, device, peak, _ = figures(app)
    assert [(t["name"], t["customdata"][0][1]) for t in live["data"]] == [
        ("activations", "10.00 MiB"),
        ("DDP buckets", "2.00 MiB"),
    ]
    assert live["layout"]["annotations"][0]["text"] == "<b>rank 0 12.00 MiB</b> · live at that moment"
    assert device["data"][0]["x"] == [12.0]
    assert peak["layout"]["annotations"][0]["text"] == "<b>FSDP2 12.00 MiB</b> · oom"
    assert (
        "- **50.00 MiB** (measured): other processes use this device: end them\n"
        "- **5.00 MiB** (estimate): half the batch: activations and inputs halve\n"
        "- **3.00 MiB** (estimate): `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: cached, but in pieces or in "
        "other streams' pools\n"
        "- **2.00 MiB** (measured): `gradient_as_bucket_view=True`: gradients live in the buckets\n"
        "- **1.00 MiB** (measured): `TORCH_NCCL_AVOID_RECORD_STREAMS=1`: freed, but a stream still holds it"
    ) in said(app)
    others, failures = [frame.value for frame in app.dataframe if frame.value.columns[0] == "rank"]
    assert others.to_dict("records") == [
        {"rank": 1, "allocated (MiB)": 3.0, "step": "0", "phase": "forward", "active unit": "-"}
    ]
    assert app.expander[0].label == "All 2 failed allocations"
    assert failures["asked for (MiB)"].fillna(-1).tolist() == [64.0, -1.0]
    assert said(app).index("Remedies") < said(app).index("Peak **12.00 MiB** allocated")


def test_on_cpu_the_room_is_not_recorded_and_no_remedy_is_called_enough(opened, tmp_path):
    run = RunBuilder("oom", path=tmp_path / "oom").set(complete=False).alloc(at=5, size=8)
    app = opened(failed(run, event=0, asked=1 << 44, free=None).build().path)
    assert app.error[0].value.endswith("How much was free is **not recorded**: the CPU allocator does not report it.")
    assert "- **4 B** (estimate): half the batch: activations and inputs halve" in said(app)
    assert "enough" not in said(app)
    assert len(figures(app)) == 3


def test_a_rank_whose_last_window_is_lost_has_empty_cells(opened, tmp_path):
    run = failed(RunBuilder("oom", path=tmp_path / "oom").set(complete=False).alloc(at=5, size=8), event=0, free=None)
    app = opened(run.rank(1).row("steps", step=0, start_ns=0, end_ns=9, complete=False, recorded=True).build().path)
    row = table(app, "rank").iloc[0]
    assert row["rank"] == 1
    assert row[["allocated (B)", "step", "phase", "active unit"]].isna().all()


def test_a_remedy_that_makes_room_is_marked():
    found = Remedy(action="a=b: why", saves_bytes=MIB, worth=Worth.MEASURED, is_enough=True)
    assert markdown(remedy(found)) == "**1.00 MiB** (measured), **enough**: `a=b`: why"
    assert (
        markdown(remedy(replace(found, worth=Worth.ESTIMATE, is_enough=None, action="less")))
        == "**1.00 MiB** (estimate): less"
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (SETUP_STEP, "**forward** of the setup, with **4 B** allocated."),
        (TEARDOWN_STEP, "**forward** of the time after the last step, with **4 B** allocated."),
    ],
)
def test_outside_of_the_steps_and_without_a_size_the_words_are_others(step, said):
    run = RunBuilder().set(device_type="cuda").step(step, 0, 9).alloc(at=1, size=4).totals(reserved=8, active=4)
    [found] = post_mortems(failed(run, event=0, asked=None, free=None).build())
    assert markdown(out_of_memory(found)) == (
        "**Out of memory.** Rank 0 did not get what it asked for (the error does not say how much), in "
        f"{said} The allocator's largest free block is **not recorded**; what the device had free is **not recorded**."
    )


def test_an_allocation_that_the_script_survived_is_only_counted(opened, tmp_path, on_device):
    app = opened(failed(on_device(tmp_path / "ok")).build().path)
    assert not app.error
    assert "Remedies" not in said(app)
    assert "1 allocation failed for lack of memory and the script went on; `fsdp-profile show --json` lists each." in [
        caption.value for caption in app.caption
    ]


def test_of_several_runs_the_one_that_failed_is_named(opened, tmp_path, make_run, on_device):
    oom = failed(on_device(tmp_path / "runs" / "oom").set(complete=False)).build()
    app = opened(make_run("fsdp2").path, oom.path)
    assert [error.value.partition(" Rank 0")[0] for error in app.error] == ["`oom`: **Out of memory.**"]


def test_hostile_names_stay_text_in_the_post_mortem_and_in_growth(opened, tmp_path, on_device):
    run = failed(on_device(tmp_path / "oom", unit=HOSTILE).set(complete=False)).build()
    app = opened(run.path)
    assert f"active unit {code(HOSTILE)}" in app.error[0].value
    grown = opened(growing(tmp_path / "g", unit=HOSTILE).path, page="memory")
    for text in [app.error[0].value, *(warning.value for warning in grown.warning), said(app), said(grown)]:
        assert "onerror" not in text.replace(code(HOSTILE), "")
    for chart in (*app.get("plotly_chart"), *grown.get("plotly_chart")):
        assert "<img" not in chart.proto.spec


# -- imported


def test_an_imported_run_did_not_fail(opened, tmp_path):
    records = [RankRecord(rank=0, ending=Ending.IMPORTED, message="imported")]
    run = RunBuilder("i", path=tmp_path / "i").set(ranks=records, extra={"imported": []}, model={})
    run = run.phase(Phase.OTHER, 0, 10).alloc(at=1, size=4)
    app = opened(run.build().path)
    assert not app.warning
    facts = dict(table(app, "fact").itertuples(index=False))
    assert (facts["ranks ended"], facts["model"]) == ("not known: imported", "not recorded")
    assert list(table(opened(run.build().path, page="ranks"), "rank")["ended"]) == ["not known: imported"]


def test_an_imported_snapshot_that_ends_with_a_failed_allocation_opens_with_it(opened, tmp_path, on_device):
    records = [RankRecord(rank=0, ending=Ending.IMPORTED, message="imported")]
    run = failed(on_device(tmp_path / "i").set(ranks=records, extra={"imported": []}))
    app = opened(run.build().path)
    assert app.error[0].value.startswith("**Out of memory.** Rank 0 asked for **64.00 MiB**")
