"""What a page says when there is little to show: no run, an empty folder, a damaged run, a manifest alone."""

import shutil

import pytest

from fsdp_profile.core import layout

PAGES = ("overview", "runs", "compare", "memory", "source", "units", "collectives", "ranks", "traces", "share")
OF_ONE_RUN = ("source", "units", "collectives", "traces", "share")
WHAT_TO_DO = ("record", "choose", "Choose", "not recorded", "fsdp-profile run", "recorded nothing")


def told(app):
    blocks = (*app.error, *app.warning, *app.info, *app.markdown)
    return [block.value for block in blocks]


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_folder_says_how_to_record(opened, tmp_path, page):
    (tmp_path / "empty").mkdir()
    app = opened(tmp_path / "empty", page=page)
    assert "fsdp-profile run train.py" in app.info[0].value
    assert f"{tmp_path / 'empty'}: no recorded run in it" in app.sidebar.warning[0].value
    assert not app.dataframe and not app.get("plotly_chart")


@pytest.mark.parametrize("page", [page for page in PAGES if page != "runs"])
def test_no_choice_asks_for_one(opened, make_run, page):
    app = opened(make_run("one").path, page=page)
    app.multiselect[0].set_value([]).run()
    assert not app.exception
    assert app.info[0].value.startswith("No run is chosen. ")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("runs", "share")])
def test_a_manifest_alone_says_that_nothing_was_recorded(opened, make_run, page):
    run = make_run("alone")
    for folder in run.path.glob("rank_*"):
        shutil.rmtree(folder)
    app = opened(run.path, page=page)
    assert not app.exception and not app.get("plotly_chart")
    said = told(app)
    assert any(word in line for line in said for word in WHAT_TO_DO), said
    assert len(app.error) <= 1


def test_a_manifest_alone_is_a_row_and_a_file(opened, make_run):
    run = make_run("alone")
    for folder in run.path.glob("rank_*"):
        shutil.rmtree(folder)
    assert opened(run.path, page="runs").dataframe[0].value["state"].tolist() == ["complete, no memory"]
    assert opened(run.path, page="share").get("download_button")


@pytest.mark.parametrize("page", PAGES)
def test_a_damaged_table_is_one_message_that_says_what_to_do(opened, make_run, page):
    run = make_run("bad")
    for rank in run.ranks:
        layout.table_path(run.path, rank, "steps").write_bytes(b"PAR1 not parquet")
    app = opened(run.path, page=page)
    assert not app.exception
    problems = [*app.error, *app.warning]
    assert all("record" in block.value for block in app.error)
    if page in ("overview", "ranks", *OF_ONE_RUN):
        assert problems


def test_the_planner_needs_no_run(opened, tmp_path):
    app = opened(tmp_path, page="whatif")
    assert app.get("plotly_chart") and not app.exception
