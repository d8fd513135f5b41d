"""What there is to choose from, and what is shown when nobody chose."""

import os

import pytest
import streamlit as st

from fsdp_dashboard import data, launch
from fsdp_dashboard.state import Selection
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.manifest import Manifest, Model
from fsdp_profile.core.schema import Strategy
from fsdp_profile.ingest.manifest import write_manifest


@pytest.fixture
def catalogue(monkeypatch):
    def read(*paths):
        monkeypatch.setenv(launch.ENV_RUNS, os.pathsep.join(map(str, paths)))
        return data.look_again()

    return read


def age(run, seconds):
    """Make a run look recorded earlier."""
    path = run.path / layout.MANIFEST
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


def test_runs_are_called_by_their_path_below_the_folder_newest_first(catalogue, make_run):
    age(make_run("demo/ddp", Strategy.DDP), 60)
    run = make_run("fsdp2")
    assert list(catalogue(run.path.parent).runs) == ["fsdp2", "demo/ddp"]


def test_two_runs_of_one_name_are_told_apart(catalogue, make_run):
    one, other = make_run("a/fsdp2"), make_run("b/fsdp2")
    found = catalogue(one.path, other.path, one.path)
    assert {label: ref.path for label, ref in found.runs.items()} == {"fsdp2": one.path, "fsdp2 (2)": other.path}


def test_runs_that_were_named_are_all_shown(catalogue, make_run):
    runs = [make_run(name) for name in ("a", "b")]
    assert catalogue(*(r.path for r in runs)).default == ("a", "b")


def test_of_a_folder_the_newest_run_is_shown_beside_its_other_strategies(catalogue, make_run):
    newest = make_run("newest")
    for seconds, (name, strategy, world_size) in enumerate(
        [("older", Strategy.FSDP2, 2), ("ddp", Strategy.DDP, 2), ("of 8 ranks", Strategy.FSDP1, 8)], start=1
    ):
        age(make_run(name, strategy, world_size=world_size), 60 * seconds)
    age(make_run("other model", Strategy.HSDP, model=Model(name="Other")), 300)
    assert catalogue(newest.path.parent).default == ("ddp", "newest")


def test_without_a_place_runs_in_this_folder_are_shown(monkeypatch, tmp_path, make_run):
    monkeypatch.delenv(launch.ENV_RUNS, raising=False)
    monkeypatch.chdir(tmp_path)
    make_run("mine")
    found = data.look_again()
    assert next(iter(found.runs)) == "mine"
    assert found.problems == ()


def test_an_answer_is_read_again_when_the_manifest_changes(catalogue, make_run):
    run = make_run("fsdp2")
    assert data.facts(catalogue(run.path).runs["fsdp2"]).manifest.world_size == 2
    make_run("fsdp2", world_size=16)
    assert data.facts(catalogue(run.path).runs["fsdp2"]).manifest.world_size == 16


def test_a_rank_that_is_not_there_is_refused(catalogue, make_run):
    facts = data.facts(catalogue(make_run("fsdp2").path).runs["fsdp2"])
    assert data.rank_shown(facts, None) == 1
    assert data.rank_shown(facts, 0) == 0
    with pytest.raises(InputError, match="no rank 7"):
        data.rank_shown(facts, 7)


def test_a_selection_is_a_query(catalogue, make_run):
    ref = catalogue(make_run("fsdp2").path).runs["fsdp2"]
    assert Selection(runs=(ref,)).query() == {"run": ["fsdp2"]}
    assert Selection(runs=(ref, ref), rank=0, step=3, units_run=ref).query() == {
        "run": ["fsdp2", "fsdp2"],
        "rank": ["0"],
        "step": ["3"],
        "units_run": ["fsdp2"],
    }
    assert Selection(all_steps=True).query()["step"] == ["all"]
    assert Selection(all_ranks=True).query()["rank"] == ["all"]


def test_the_overview_of_a_run_reads_no_table_again(opened, make_run, monkeypatch):
    from fsdp_profile.analysis import run as run_module

    path, read = make_run("fsdp2").path, []
    first = opened(path)
    st.cache_data.clear()
    read_before = run_module._cached_table
    monkeypatch.setattr(run_module, "_cached_table", lambda *of: read.append(of[1]) or read_before(*of))
    again = opened(path)
    assert read == []
    for kind in ("markdown", "metric", "caption", "expander"):
        told = [(getattr(e, "value", None), getattr(e, "label", None)) for e in getattr(first, kind)]
        assert told == [(getattr(e, "value", None), getattr(e, "label", None)) for e in getattr(again, kind)]


def test_a_recording_that_nobody_converted_is_converted_when_it_is_looked_at(catalogue, tmp_path):
    run_dir = tmp_path / "runs" / "raw"
    layout.raw_dir(run_dir, 0).mkdir(parents=True)
    write_manifest(run_dir, Manifest(name="raw", created="now"))
    layout.capture_log(run_dir, 0).write_text('{"kind": "rank", "rank": 0, "start_ns": 0}\n')
    (ref,) = catalogue(run_dir).runs.values()
    data.facts(ref)
    assert not layout.table_path(run_dir, 0, "steps").exists()  # the log may still grow
    os.utime(layout.capture_log(run_dir, 0), (0, 0))
    data._convert.clear()
    data.facts(ref)
    assert layout.table_path(run_dir, 0, "steps").exists()
