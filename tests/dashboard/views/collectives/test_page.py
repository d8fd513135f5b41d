"""The collectives page and what the ranks page says across ranks: numbers are those of `show --json`."""

import json

import pytest
from builder import RunBuilder

from fsdp_dashboard.text import code
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views.collectives.page import left_out
from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.collectives.traffic import step_traffic
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.summary import run_summary
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.core.layout import packaged
from fsdp_profile.core.schema import CollectiveKind, Phase, Strategy
from fsdp_profile.present.stragglers import late_rank

SAMPLES = ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks", "gpt-hsdp-4ranks")
MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


def sample(name):
    return load_run(packaged("sample_runs") / name)


def said(app):
    return "\n".join(block.value for block in app.markdown)


def captions(app):
    return "\n".join(block.value for block in app.caption)


def figure(app, number=0):
    return json.loads(app.get("plotly_chart")[number].proto.spec)


def table(app, column):
    """The table that begins with a column."""
    return next(frame.value for frame in app.dataframe if frame.value.columns[0] == column)


def ms(duration_ns):
    return pytest.approx(duration_ns / 1e6, abs=5e-4)


# -- collectives


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sentence_and_the_totals_are_those_of_show_json(opened, name):
    run = sample(name)
    document = run_summary(run)
    found, rank = document["collectives"], document["reported_rank"]
    app = opened(run.path, page="collectives")
    exposed, total = found["exposed_ns"], found["total_ns"]
    assert said(app).startswith(
        f"**{ns_text(exposed // 4)} of {ns_text(total // 4)}** of collective time per step was not hidden behind "
        f"compute ({ratio_text(exposed / total)}): {ns_text(exposed)} of {ns_text(total)} over 4 steps of rank {rank}."
    )
    kinds = table(app, "kind").set_index("kind")
    assert set(kinds.index) == {CollectiveKind(kind).label for kind in found["by_kind"]}
    summary = collective_summary(run, rank=rank)
    for kind, numbers in found["by_kind"].items():
        assert kinds.loc[CollectiveKind(kind).label, "calls"] == numbers["count"]
        assert kinds.loc[CollectiveKind(kind).label, "time (ms)"] == ms(numbers["ns"])
        assert kinds.loc[CollectiveKind(kind).label, "exposed (ms)"] == ms(summary.by_kind[kind].exposed_ns)
    units = {unit["name"] or "(root)": unit for unit in document["units"]}
    for row in table(app, "unit").to_dict("records"):
        if row["unit"] in units:
            unit = units[row["unit"]]
            assert row["exposed (ms)"] == ms(unit["exposed_ns"])
            assert row["time (ms)"] == ms(unit["all_gather_ns"] + unit["reduce_scatter_ns"])


def test_all_ranks_have_the_bandwidths_of_show_json(opened):
    run = sample("gpt-hsdp-4ranks")
    matches = run_summary(run)["across_ranks"]["by_kind"]
    app = opened(run.path, page="collectives", rank="all")
    assert app.selectbox(key="rank").value == "all"
    kinds = table(app, "kind").set_index("kind")
    for kind, numbers in matches.items():
        assert kinds.loc[CollectiveKind(kind).label, "busbw (GB/s)"] == pytest.approx(
            numbers["busbw_bytes_per_s"] / 1e9, abs=5e-4
        )
    groups = table(app, "group")
    assert sorted(groups["group"]) == ["mesh_replicate 1", "mesh_replicate 2", "mesh_shard 3", "mesh_shard 4"]
    assert list(groups["ranks"]) == [2, 2, 2, 2]
    assert sorted(table(app, "rank")["rank"]) == [0, 1, 2, 3]
    assert len(figure(app)["layout"]["yaxis"]["ticktext"]) == 12
    assert "The clocks of the ranks are the same; ends of the same collective agree within" in captions(app)


def test_the_page_opens_on_the_step_with_most_exposed_time_and_a_link_on_its_own(opened):
    run = sample("gpt-hsdp-4ranks")
    document = run_summary(run)
    shown = document["reported_rank"]
    exposed = {step["step"]: sum(c["exposed_ns"] for c in step["collectives"]) for step in document["time_by_step"]}
    app = opened(run.path, page="collectives")
    assert f"##### Step {max(exposed, key=lambda s: exposed[s])}, rank {shown}" in said(app)
    app.selectbox(key="rank").select("0").run()
    app.selectbox(key="step").select("3").run()
    assert "##### Step 3, rank 0" in said(app)
    assert "##### Step 3, rank 0" in said(opened(run.path, page="collectives", rank="0", step="3"))


def test_one_of_several_runs_is_shown_the_sharded_first(opened, make_run):
    runs = [make_run("ddp", Strategy.DDP), make_run("fsdp2")]
    app = opened(*(r.path for r in runs), page="collectives")
    assert app.selectbox(key="units_run").value == "fsdp2"
    app.selectbox(key="units_run").select("ddp").run()
    assert list(table(app, "kind")["kind"]) == ["all-reduce"]


def test_steps_are_bars_of_exposed_and_overlapped_time(opened, tmp_path):
    run = RunBuilder("f", path=tmp_path / "f")
    for step in (0, 1):
        run.step(step, 40 * step * MS, 40 * (step + 1) * MS).kernel((40 * step + 5) * MS, (40 * step + 8) * MS)
        run.collective(CollectiveKind.ALL_GATHER, 40 * step * MS, (40 * step + 6 + step) * MS, step=step)
    drawn = figure(opened(run.build().path, page="collectives"), 1)
    assert [(t["name"], t["x"], t["y"]) for t in drawn["data"]] == [
        ("exposed", ["0", "1"], [5.0, 5.0]),
        ("overlapped", ["0", "1"], [1.0, 2.0]),
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_step_sends_is_that_of_show_json(opened, name):
    run = sample(name)
    document = run_summary(run)
    moved = step_traffic(run, rank=document["reported_rank"])
    assert (
        f"Rank {document['reported_rank']} sends **{bytes_text(moved.wire_bytes)}** per step if each collective runs "
        f"as a ring (estimate); the whole arrays hold **{bytes_text(moved.size_bytes)}** (median of {moved.num_steps} "
        "complete steps)."
    ) in said(opened(run.path, page="collectives"))


def test_what_a_step_sends_is_not_recorded_where_a_size_is_missing(opened, tmp_path):
    run = RunBuilder("n", path=tmp_path / "n").step(0, 0, 9 * MS)
    run.collective(CollectiveKind.ALL_GATHER, MS, 3 * MS, size_bytes=None)
    assert "What a step sends is **not recorded**: there is no complete step with collectives of known size" in said(
        opened(run.build().path, page="collectives")
    )


def timed(path):
    """On a device: 10 ms of compute, a gather of 10 ms whose last 5 ms are alone, a copy of 1 ms, idle for 4 ms."""
    run = RunBuilder(path.name, path=path).set(device_type="cuda").step(0, 0, 20 * MS)
    for name, start, end, launch in (("gemm", 0, 10, 0), ("Memcpy HtoD", 19, 20, 17)):
        run.row("kernels", name=name, start_ns=start * MS, end_ns=end * MS, stream=7, step=0, launch_ns=launch * MS)
    return run.collective(CollectiveKind.ALL_GATHER, 5 * MS, 15 * MS, launch_ns=5 * MS).build()


def test_the_parts_of_a_steps_time_and_what_of_it_is_the_hosts(opened, tmp_path):
    app = opened(timed(tmp_path / "t").path, page="collectives")
    assert "##### Where each step's time went, rank 0" in said(app)
    assert [(t["name"], t["y"]) for t in figure(app, 2)["data"]] == [
        ("compute", [10.0]),
        ("exposed", [5.0]),
        ("copies", [1.0]),
        ("idle", [4.0]),
    ]
    assert table(app, "step").to_dict("records") == [
        {"step": 0, "span (ms)": 20.0, "compute (ms)": 10.0, "exposed (ms)": 5.0, "copies (ms)": 1.0,
         "idle (ms)": 4.0, "overlapped (ms)": 5.0, "host-bound (ms)": 2.0}
    ]  # fmt: skip
    assert "host-bound: idle while nothing that was launched waits to start." in captions(app)


def test_on_cpu_host_bound_time_is_not_recorded_for_a_reason(opened):
    app = opened(sample("gpt-fsdp2-2ranks").path, page="collectives")
    assert "host-bound: not recorded, it ran on CPU: host and device are one." in captions(app)
    assert table(app, "step")["host-bound (ms)"].isna().all()


def test_time_by_step_is_there_without_collectives(opened, tmp_path):
    run = RunBuilder("n", path=tmp_path / "n").step(0, 0, 9 * MS).kernel(MS, 4 * MS).alloc(at=1, size=4).build()
    app = opened(run.path, page="collectives")
    assert len(app.info) == 1
    assert [(t["name"], t["y"]) for t in figure(app)["data"]] == [("compute", [3.0]), ("idle", [6.0])]


def test_a_device_run_without_memory_shows_its_first_rank(opened, tmp_path):
    run = RunBuilder("d", path=tmp_path / "d").set(device_type="cuda", extra={"imported": []})
    for rank in (0, 1):
        run.rank(rank).step(10, 0, 20 * MS).kernel(MS, 3 * MS, step=10)
        run.collective(CollectiveKind.ALL_TO_ALL, 2 * MS, 6 * MS, step=10, group_size=None)
    app = opened(run.build().path, page="collectives")
    assert said(app).startswith(
        "**3.00 ms of 4.00 ms** of collective time per step was not hidden behind compute (75.0 %)"
    )
    assert "over 1 step of rank 0." in said(app)
    assert list(table(app, "group")["group"]) == ["not recorded"]
    assert list(table(app, "unit")["unit"]) == ["(no unit)"]


def test_a_run_without_collectives_says_why(opened, tmp_path):
    run = RunBuilder("n", path=tmp_path / "n").alloc(at=1, size=4)
    app = opened(run.build().path, page="collectives")
    assert app.info[0].value == (
        "Collectives of `n`: **not recorded**, `no collectives were recorded in the training steps`"
    )
    assert not app.get("plotly_chart")
    told = run.set(not_recorded={"collectives": "Kineto was off"}).build()
    assert "`Kineto was off`" in opened(told.path, page="collectives").info[0].value


def test_exposed_time_without_compute_is_not_recorded_rather_than_all(opened, tmp_path):
    run = RunBuilder("n", path=tmp_path / "n").step(0, 0, 9 * MS)
    app = opened(run.collective(CollectiveKind.ALL_GATHER, MS, 3 * MS).build().path, page="collectives")
    assert "**2.00 ms** of collective time per step" in said(app)
    assert "How much of it was not hidden behind compute is **not recorded**" in said(app)
    assert table(app, "kind")["exposed (ms)"].isna().all()
    assert [info.value for info in app.info] == [
        "Time by step of `n`: **not recorded**, `no kernels or operators were recorded in the training steps`"
    ]


def test_what_is_not_drawn_is_counted():
    assert left_out(0, 0) == ""
    assert left_out(7, 1200) == (
        "7 of the shortest collectives and 1,200 of the shortest exposed time windows are not drawn."
    )


# -- ranks


@pytest.mark.parametrize("name", SAMPLES)
def test_ranks_say_who_was_late_as_show_json_does(opened, name):
    run = sample(name)
    matches = run_summary(run)["across_ranks"]
    app = opened(run.path, page="ranks")
    worst = matches["stragglers"][0]
    sentence = markdown(late_rank(cross_rank(run).stragglers, matches["matched"]))
    assert sentence in said(app)
    assert sentence in said(opened(run.path))
    assert f"came last in {worst['times_last']}" in said(app)
    assert ns_text(worst["wait_caused_ns"]) in said(app)
    rows = app.dataframe[2].value.to_dict("records")
    assert [(r["rank"], r["times last"], r["worst step"]) for r in rows] == [
        (s["rank"], s["times_last"], s["worst_step"]) for s in matches["stragglers"]
    ]
    for row, late in zip(rows, matches["stragglers"], strict=True):
        assert row["wait caused (ms)"] == ms(late["wait_caused_ns"])
        assert row["late in that unit (ms)"] == ms(late["worst_unit_late_ns"])
        assert row["slowest unit"] == {None: "(no active unit)", "": "(root)"}.get(
            late["worst_unit"], late["worst_unit"]
        )
    waits = app.dataframe[1].value
    whole = sum(kind["wait_ns"] for kind in matches["by_kind"].values())
    assert waits["waited (ms)"].sum() == pytest.approx(whole / 1e6, abs=0.005)
    assert f"{matches['matched']} of {matches['matched']} collectives were matched between the ranks." in captions(app)
    assert f"agree within {ns_text(matches['clock']['residual_ns'])} (median)" in captions(app)


def late_and_lost(path):
    """Rank 1 comes 3 ms late to a gather of a unit with a hostile name, and never to the second one."""
    run = RunBuilder("lost", path=path)
    for rank, start in ((0, MS), (1, 4 * MS)):
        run.rank(rank).step(0, 0, 30 * MS).unit(HOSTILE)
        for begin, end in ((start, 10 * MS), (11 * MS, 12 * MS), *([] if rank else [(20 * MS, 22 * MS)])):
            run.collective(CollectiveKind.ALL_GATHER, begin, end, unit=0, size_bytes=8, group="7", phase=Phase.FORWARD,
                           group_description=HOSTILE)  # fmt: skip
    return run.build()


def test_a_collective_that_a_rank_never_joined_is_named_and_its_names_stay_text(opened, tmp_path):
    run = late_and_lost(tmp_path / "lost")
    (lost,) = cross_rank(run).never_joined
    assert (lost.rank, lost.index) == (1, 2)
    app = opened(run.path, page="ranks")
    group = code(f"7 {HOSTILE}")
    assert app.error[0].value == (f"Rank 1 never joined all-gather #2 of {code(HOSTILE)} (step 0, group {group}).")
    assert "2 of 3 collectives were matched between the ranks; 1 not: some of its ranks never joined." in captions(app)


def test_one_rank_has_no_other_to_wait_for(opened, tmp_path):
    run = RunBuilder("one", path=tmp_path / "one").collective(CollectiveKind.ALL_GATHER, MS, 2 * MS).build()
    assert "one rank only: there is no other to compare with" in opened(run.path, page="ranks").info[-1].value


def test_without_a_match_the_reasons_and_the_clocks_are_told(opened, tmp_path):
    run = RunBuilder("m", path=tmp_path / "m")
    for rank, kind in ((0, CollectiveKind.ALL_GATHER), (1, CollectiveKind.ALL_REDUCE)):
        run.rank(rank).step(0, 0, 30 * MS).collective(kind, MS, 2 * MS, sequence=0, group="0")
    app = opened(run.build().path, page="ranks")
    assert "`kind, size or dtype differ between the ranks`" in app.info[-1].value
    assert "0 of 1 collectives were matched between the ranks; 1 not: kind, size or dtype differ" in captions(app)
    assert "**not aligned**: no collective was recorded by all of its ranks." in captions(app)
