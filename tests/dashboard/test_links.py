"""Every choice is in the address: what it names is shown, and no widget that changes a page is left out."""

import pytest
from builder import RunBuilder

from fsdp_dashboard.views.share.queries import FORMATS
from fsdp_profile.core.schema import Strategy

PAGES = (
    "overview",
    "runs",
    "compare",
    "memory",
    "source",
    "units",
    "collectives",
    "ranks",
    "traces",
    "share",
    "whatif",
)
KINDS = ("selectbox", "multiselect", "toggle", "select_slider", "text_input", "radio", "checkbox", "slider")
NOT_IN_A_LINK = ("pseudonym_key", "tags_of")
"""A secret, and what is written, not looked at."""


@pytest.fixture
def folder(make_run, tmp_path):
    """The two runs to compare, and one that names source lines."""
    make_run("ddp", Strategy.DDP)
    make_run("fsdp2")
    run = RunBuilder("lines", path=tmp_path / "runs" / "lines").alloc(at=1, size=8, site="a.py:1 f")
    run.alloc(at=2, size=4, site="b.py:2 g").build()
    return tmp_path / "runs"


def widgets(app):
    return {widget.key: widget for kind in KINDS for widget in getattr(app, kind)}


@pytest.mark.parametrize("page", PAGES)
def test_every_widget_of_a_page_is_in_the_address(opened, folder, page):
    query = {"whatif": "fsdp2"} if page == "whatif" else {"hide_modules": "true"} if page == "share" else {}
    app = opened(folder, page=page, run=["lines"] if page == "source" else ["ddp", "fsdp2"], **query)
    found = {key: widget.proto.query_param_key for key, widget in widgets(app).items()}
    assert found["run"] == "run"
    assert [key for key, name in found.items() if name != key and not key.startswith(NOT_IN_A_LINK)] == []


LINKS = {
    "overview": {"units_run": "ddp"},
    "runs": {"words": "gpt", "is": ["DDP"], "sort": "name"},
    "compare": {"units_run": "fsdp2", "step": "2", "align": "phase"},
    "memory": {"rank": "0", "step": "2"},
    "units": {"units_run": "fsdp2", "rank": "0", "step": "2", "units_by": "exposed time"},
    "collectives": {"units_run": "fsdp2", "rank": "all", "step": "2"},
    "traces": {"units_run": "ddp"},
    "share": {"format": ".csv", "units_run": "fsdp2", "redact": False, "hide_modules": None},
    "whatif": {"whatif": "fsdp2", "device": "none", "ranks": "16", "batch_percent": "200", "seq_percent": "50",
               "ac": True, "strategy": ["fsdp"]},
}  # fmt: skip


@pytest.mark.parametrize("page", LINKS)
def test_a_link_sets_every_widget_of_its_page(opened, folder, page):
    wanted = {key: value for key, value in LINKS[page].items() if value is not None}
    query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in wanted.items()}
    query.update(
        {"format": FORMATS[query["format"]]} if "format" in query else {}
    )  # a link names it as the picker does
    app = opened(folder, page=page, run=["ddp", "fsdp2"], **query)
    found = widgets(app)
    assert {key: found[key].value for key in wanted} == wanted
    assert set(found) - {"run"} - set(wanted) <= {key for key in found if key.startswith(NOT_IN_A_LINK)} | {"tag"}


def test_a_link_names_the_source_line(opened, folder):
    app = opened(folder, page="source", run=["lines"], line="b.py:2 g", rank="0", step="0")
    assert {key: w.value for key, w in widgets(app).items()} == {
        "run": ["lines"], "line": "b.py:2 g", "rank": "0", "step": "0",
    }  # fmt: skip
    assert "##### The code · `b.py:2 g`" in [block.value for block in app.markdown]


def test_units_are_sorted_as_the_link_says(opened, folder):
    app = opened(folder, page="units", run=["fsdp2"], units_by="unsharded bytes")
    rows = app.dataframe[0].value
    assert rows["unit"].tolist() == ["layers.0", "layers.1", "layers.2", "layers.3", "(root)"]
    app.selectbox(key="units_by").select("as the model was built").run()
    assert app.dataframe[0].value["unit"].tolist()[0] == "(root)"


def test_a_run_that_a_link_names_twice_is_shown_once(opened, folder):
    app = opened(folder, page="ranks", run=["fsdp2", "ddp", "fsdp2", "ddp"])
    heads = [block.value for block in app.markdown if block.value.startswith("#### ")]
    assert heads == ["#### FSDP2 · `fsdp2`", "#### DDP · `ddp`"]
