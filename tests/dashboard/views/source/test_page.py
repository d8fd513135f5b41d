"""The source page: bytes at the peak by line, and the code around one."""

import json
import os

import pytest
from builder import RunBuilder
from plotly.graph_objs import Figure

from fsdp_dashboard.views.source.charts import MAX_LINES, source_figure
from fsdp_dashboard.views.source.queries import SourceLines
from fsdp_dashboard.views.source.source_file import MAX_BYTES, SourceFile, excerpt
from fsdp_profile.analysis.memory.call_sites import SourceLine, source_lines
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.core.categories import Category

MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"
CODE = "".join(f"line {number}\n" for number in range(1, 41))


def said(app):
    return "\n".join(block.value for block in app.markdown)


def figure(app):
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def table(app):
    return app.dataframe[0].value


def recorded(path, *, script="train.py", **manifest):
    """8 MiB at the peak: 3 + 1 of line 12 in two categories, 2 of line 14, 1 of a model's, 1 of no own line."""
    run = RunBuilder(path.name, path=path).set(**manifest).step(0, 0, 50).step(1, 50, 100)
    run.alloc(at=1, size=3 * MIB, site=f"{script}:12 main")
    run.alloc(at=2, size=MIB, site=f"{script}:12 main", category=Category.INPUT)
    run.alloc(at=3, size=2 * MIB, site=f"{script}:14 main", category=Category.PARAM)
    run.alloc(at=4, free=40, size=MIB, site="pkg/model.py:3 forward")
    run.alloc(at=5, free=40, size=MIB)
    run.alloc(at=60, size=512 * 1024, site=f"{script}:20 main")
    return run.build()


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with train.py, as the current one."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)
    os.utime(folder / "train.py", (1_700_000_000, 1_700_000_000))
    monkeypatch.chdir(folder)
    return folder


def test_the_lines_that_hold_the_peak_are_bars_and_rows(opened, tmp_path, work):
    app = opened(recorded(tmp_path / "r").path, page="source")
    assert (
        "Rank 0 peaks at **8.00 MiB** in **forward** of step 0. **87.5 %** of it (7.00 MiB) was allocated by a line of "
        "the script's own code."
    ) in said(app)
    drawn = figure(app)
    assert [t["name"] for t in drawn["data"]] == ["parameters", "inputs", "activations"]
    titles = [note["text"] for note in drawn["layout"]["annotations"]]
    assert titles == [
        "<b>4.00 MiB</b> · train.py:12 main",
        "<b>2.00 MiB</b> · train.py:14 main",
        "<b>1.00 MiB</b> · pkg/model.py:3 forward",
    ]
    assert table(app).to_dict("records") == [
        {"bytes (MiB)": 4.0, "share (%)": 50.0, "line": "train.py:12", "function": "main", "blocks": 2,
         "categories": "3.00 MiB activations, 1.00 MiB inputs"},
        {"bytes (MiB)": 2.0, "share (%)": 25.0, "line": "train.py:14", "function": "main", "blocks": 1,
         "categories": "parameters"},
        {"bytes (MiB)": 1.0, "share (%)": 12.5, "line": "pkg/model.py:3", "function": "forward", "blocks": 1,
         "categories": "activations"},
    ]  # fmt: skip


def test_the_code_around_the_line_has_what_each_line_holds(opened, tmp_path, work):
    app = opened(recorded(tmp_path / "r").path, page="source")
    rows = app.code[0].value.split("\n")
    assert rows[0] == "               3 | line 3"
    assert rows[9] == ">   4.00 MiB  12 | line 12"
    assert rows[10] == "              13 | line 13"
    assert rows[11] == "    2.00 MiB  14 | line 14"
    assert rows[-1] == "              21 | line 21"
    assert not app.warning
    assert app.caption[0].value == "`train.py` as it is now; sizes are what each line holds at the peak."


def test_a_line_is_chosen_and_linked(opened, tmp_path, work):
    path = recorded(tmp_path / "r").path
    app = opened(path, page="source")
    assert app.selectbox(key="line").options == [
        "most bytes",
        "train.py:12 main",
        "train.py:14 main",
        "pkg/model.py:3 forward",
    ]
    app.selectbox(key="line").select("train.py:14 main").run()
    assert ">   2.00 MiB  14 | line 14" in app.code[0].value
    assert opened(path, page="source", line="train.py:14 main").code[0].value == app.code[0].value
    assert ">   4.00 MiB  12 | line 12" in opened(path, page="source", line="gone.py:1 f").code[0].value


def test_another_step_has_another_peak(opened, tmp_path, work):
    app = opened(recorded(tmp_path / "r").path, page="source", step="1")
    assert "Rank 0 peaks at **6.50 MiB** in **forward** of step 1. **100.0 %**" in said(app)
    assert list(table(app)["line"]) == ["train.py:12", "train.py:14", "train.py:20"]


def test_a_file_that_is_not_here_is_said_to_be(opened, tmp_path, work):
    (work / "large.py").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "secret.py").write_text("secret\n" * 40)
    (work / "link.py").symlink_to(tmp_path / "secret.py")
    for script, why in (
        ("gone.py", "source file is not here"),
        ("../secret.py", "source file is not here"),
        (str(tmp_path / "secret.py"), "source file is not here"),
        ("link.py", "source file is not here"),
        ("large.py", "the file is larger than 400 kB"),
    ):
        app = opened(recorded(tmp_path / "r", script=script).path, page="source")
        assert app.info[0].value == f"`{script}`: {why}"
        assert not app.code
        assert len(table(app)) == 3


def test_the_folder_of_the_recording_is_known_by_where_the_run_lies(opened, tmp_path, work):
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text(CODE.replace("line", "other"))
    app = opened(recorded(other / "runs" / "r").path, page="source")
    assert ">   4.00 MiB  12 | other 12" in app.code[0].value
    assert app.caption[0].value.startswith(f"`{other / 'train.py'}` as it is now")


@pytest.mark.parametrize(
    ("created", "is_told"),
    [("2023-11-14T22:13:19+00:00", True), ("2023-11-14T22:13:20+00:00", False), ("yesterday", False), ("", False)],
)
def test_a_file_that_was_changed_since_is_told(opened, tmp_path, work, created, is_told):
    app = opened(recorded(tmp_path / "r", created=created).path, page="source")
    assert [w.value for w in app.warning] == (
        ["The file was changed after the run was recorded: its lines may have moved."] if is_told else []
    )
    assert len(app.code) == 1


def test_a_line_that_the_file_no_longer_has_is_told(opened, tmp_path, work):
    (work / "train.py").write_text("line 1\n")
    app = opened(recorded(tmp_path / "r").path, page="source")
    assert "its lines may have moved" in app.warning[0].value
    assert not app.code


def test_without_lines_the_page_says_how_to_record_them(opened, tmp_path):
    run = RunBuilder("r", path=tmp_path / "r").alloc(at=1, size=4).build()
    app = opened(run.path, page="source")
    assert app.info[0].value == "Source lines of `r`: **not recorded**, `record with --stacks`"
    assert app.code[0].value == "fsdp-profile run --stacks train.py"
    assert not app.get("plotly_chart")


def test_an_imported_run_without_stacks_says_so(opened, tmp_path):
    run = RunBuilder("r", path=tmp_path / "r").set(extra={"imported": []}).alloc(at=1, size=4).build()
    assert "the files that were imported have no Python stacks" in opened(run.path, page="source").info[0].value


def test_a_peak_of_no_own_line_has_no_figure(opened, tmp_path):
    run = RunBuilder("r", path=tmp_path / "r").alloc(at=1, free=2, size=4, site="a.py:1 f").alloc(at=3, size=8)
    app = opened(run.build().path, page="source")
    assert "**0.0 %** of it (0 B) was allocated" in said(app)
    assert not app.get("plotly_chart")


def test_hostile_lines_stay_text(opened, tmp_path, work):
    run = RunBuilder("r", path=tmp_path / "r").alloc(at=1, size=MIB, site=f"train.py:1 {HOSTILE}")
    app = opened(run.build().path, page="source")
    assert "onerror" not in said(app).replace("`` train.py:1 " + HOSTILE + " ``", "")
    assert "<img" not in app.get("plotly_chart")[0].proto.spec
    assert not any("onerror" in block.proto.body for block in app.get("html"))
    assert table(app)["function"][0] == HOSTILE


# -- the figure and the excerpt


def a_line(number, size, **more):
    held = {"by_category": {Category.ACTIVATION: size}, "num_blocks": 1, "function": "f", "file": "a.py", **more}
    return SourceLine(line=number, size_bytes=size, **held)


def test_the_figure_stacks_categories_and_counts_shares_of_the_peak(tmp_path):
    run = recorded(tmp_path / "r")
    found = source_lines(run, rank=0, event=peak(run, rank=0).event)
    drawn = source_figure(found, peak_bytes=8 * MIB)
    Figure(**drawn)
    bars = {t["name"]: list(t["x"]) for t in drawn["data"]}
    assert bars == {"parameters": [0, 2, 0], "inputs": [1, 0, 0], "activations": [3, 0, 1]}
    assert drawn["data"][2]["customdata"][0] == ("train.py:12 main", "3.00 MiB", "37.5 %")


def test_the_figure_draws_the_first_lines_only():
    drawn = source_figure([a_line(n, 100 - n) for n in range(20)], peak_bytes=100)
    assert len(drawn["data"][0]["x"]) == len(drawn["layout"]["annotations"]) == MAX_LINES == 15
    assert drawn["layout"]["annotations"][0]["text"] == "<b>100 B</b> · a.py:0 f"


def test_two_functions_on_one_line_add_up_in_the_code(tmp_path):
    lines = (a_line(1, 30), a_line(1, 12, function="g"), a_line(2, 5, file="b.py"))
    run = RunBuilder(path=tmp_path / "r").alloc(at=1, size=4).build()
    found = SourceLines(peak=peak(run, rank=0), lines=lines)
    source = SourceFile(path=tmp_path, lines=("x", "y" * 300), changed_ns=0)
    assert excerpt(source, lines[0], found.lines) == f">       42 B  1 | x\n              2 | {'y' * 200}"
    assert excerpt(source, a_line(0, 1), found) is None
    assert excerpt(source, a_line(3, 1), found) is None
