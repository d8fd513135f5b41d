"""A run of 1,024 ranks on 128 nodes: its pages read the summaries of the ranks, not their tables."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from builder import RunBuilder

from fsdp_dashboard.views.ranks.grid_chart import extremes, rank_grid_figure
from fsdp_profile.analysis import run as runs
from fsdp_profile.analysis.cache import cached_of_run, store_in_run
from fsdp_profile.analysis.collectives.cross_rank_summary import CrossRankSummary, cross_rank_summary
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.collectives.timeline import RankWait
from fsdp_profile.analysis.ranks.grid import Measure, RankGrid
from fsdp_profile.analysis.ranks.overview import SUMMARY, rank_summaries
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core import layout
from fsdp_profile.core.manifest import Manifest, RankRecord
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.manifest import write_manifest

RANKS, NODES, LOCAL = 1024, 128, 8
MIB, MS = 1 << 20, 1_000_000
HIGH, LATE = 77, 513


def many_ranks(path: Path) -> Run:
    """Every rank needs 100 MiB and one more for each local rank before it; HIGH 200 more; LATE is waited for."""
    builder = RunBuilder("many", path=path)
    for rank in (*range(LOCAL), HIGH):
        size = (100 + rank % LOCAL + (200 if rank == HIGH else 0)) * MIB
        builder.rank(rank).step(0, 0, 10 * MS).step(1, 10 * MS, 30 * MS).alloc(at=1, size=size)
    few = builder.build()
    for rank in range(RANKS):
        folder = layout.rank_dir(path, rank)
        if not folder.exists():
            folder.mkdir()
            for file in layout.rank_dir(path, rank % LOCAL).glob("*.parquet"):
                os.link(file, folder / file.name)
    records = [
        RankRecord(rank=r, host=f"node{r // LOCAL:03d}", device=f"cuda:{r % LOCAL}", ending=Ending.COMPLETED)
        for r in range(RANKS)
    ]
    told = Manifest(name="many", created="2026-01-02T03:04:05+00:00", strategy=Strategy.FSDP2, world_size=RANKS,
                    device_type="cuda", ranks=records, complete=True)  # fmt: skip
    write_manifest(path, told)
    run = load_run(path)
    # As the launcher of each node stores them after its ranks ended.
    like = {one.rank: one for one in rank_summaries(few)}
    for rank in run.ranks:
        of = like[rank if rank == HIGH else rank % LOCAL]
        mine = replace(of, rank=rank, peak=replace(of.peak, rank=rank))
        store_in_run(run, SUMMARY, mine, rank=rank)
    late = Straggler(rank=LATE, times_last=4, wait_caused_ns=9 * MS, worst_unit=None, worst_unit_late_ns=MS,
                     worst_step=1, worst_step_late_ns=MS)  # fmt: skip
    waits = tuple(RankWait(rank=r, count=4, wait_ns=0 if r == LATE else r, transfer_ns=MS) for r in run.ranks)
    matches = replace(cross_rank_summary(few), num_matched=4, stragglers=(late,), waits=waits, is_single_rank=False)
    cached_of_run(run, "cross_rank", CrossRankSummary, compute=lambda: matches)
    return run


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return many_ranks(tmp_path_factory.mktemp("runs") / "many")


def shown(app):
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def test_1024_ranks_are_one_picture_made_of_their_summaries(opened, many, monkeypatch):
    monkeypatch.setattr(runs, "read_table", lambda path, _: pytest.fail(f"{path} was read"))
    app = opened(many.path, page="ranks")
    assert len(app.get("plotly_chart")) == 1
    (heat,) = shown(app)["data"]
    assert (len(heat["z"]), {len(row) for row in heat["z"]}) == (LOCAL, {NODES})
    assert [row[0] for row in heat["z"]] == [100 + local for local in range(LOCAL)]
    assert heat["z"][HIGH % LOCAL][HIGH // LOCAL] == 300 + HIGH % LOCAL
    assert heat["customdata"][HIGH % LOCAL][HIGH // LOCAL] == "<b>rank 77</b>, node009<br>305.00 MiB"
    assert app.caption[0].value == "peak, allocated: 305.00 MiB on rank 77, the highest, 100.00 MiB on rank 0."
    assert len(app.dataframe[0].value) == RANKS
    assert "**Rank 513** came last in 4 of 4 matched collectives" in app.markdown[2].value


def test_the_measure_is_chosen_and_in_the_link(opened, many, monkeypatch):
    monkeypatch.setattr(runs, "read_table", lambda path, _: pytest.fail(f"{path} was read"))
    app = opened(many.path, page="ranks", measure=str(Measure.CAUSED))
    (heat,) = shown(app)["data"]
    assert heat["z"][LATE % LOCAL][LATE // LOCAL] == 9.0
    assert sum(map(sum, heat["z"])) == 9.0
    app.selectbox(key="measure").select(str(Measure.RESERVED)).run()
    assert app.caption[0].value == "peak, reserved: not recorded."


GRID = RankGrid(columns=("<b>a</b>", "b"), are_hosts=True, ranks=((0, 1), (2,)))


def test_a_rank_without_a_value_is_a_hole_that_says_so():
    drawn = rank_grid_figure(GRID, {0: 5 * MS, 1: None, 2: 7 * MS}, Measure.STEP)
    (heat,) = drawn["data"]
    assert heat["z"] == [[5.0, 7.0], [None, None]]
    assert heat["customdata"] == [
        ["<b>rank 0</b>, &lt;b&gt;a&lt;/b&gt;<br>5.00 ms", "<b>rank 2</b>, b<br>7.00 ms"],
        ["<b>rank 1</b>, &lt;b&gt;a&lt;/b&gt;<br>not recorded", "no rank here"],
    ]
    assert [note["text"] for note in drawn["layout"]["annotations"]] == ["highest: rank 2, 7.00 ms"]


def test_the_picture_in_words():
    assert extremes({0: 1, 1: 3, 2: None}, Measure.UNKNOWN) == (
        "unknown at the peak: 3 B on rank 1, the highest, 1 B on rank 0; not recorded on 1 of 3 ranks"
    )
    assert extremes({0: 2 * MS, 1: 2 * MS}, Measure.STEP) == "median step: 2.00 ms on every rank"
    assert extremes({0: None}, Measure.PEAK) == "peak, allocated: not recorded"
