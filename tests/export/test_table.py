"""Tables and charts: what is in them, and that no name in them does anything."""

import csv
import io
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builder import RunBuilder
from recording import ROOT

from fsdp_profile.analysis.memory.ledger import peak, timeline
from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import TABLES, Phase, SpanKind
from fsdp_profile.export.formats import CHARTS
from fsdp_profile.export.table import NAMES, csv_bytes, markdown_bytes, parquet_table
from fsdp_profile.render.svg.charts import chart_svg

FSDP2 = ROOT / "sample_runs" / "gpt-fsdp2-2ranks"
HOSTILE = "=cmd|'/c calc'!A1 <b>|@me"


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_the_timeline_is_the_ledger_of_every_rank():
    run = load_run(FSDP2)
    found = rows(csv_bytes(run))
    mine = [row for row in found if row["rank"] == "0"]
    ledger = timeline(run, rank=0)
    assert len(found) == sum(run.table("memory_samples", rank=rank).num_rows for rank in run.ranks)
    assert [int(row["allocated_bytes"]) for row in mine] == ledger.allocated_bytes.tolist()
    assert [int(row["activation_bytes"]) for row in mine] == ledger.by_category[Category.ACTIVATION].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_the_same_as_csv_and_parquet(name):
    run = load_run(FSDP2)
    of_csv, of_parquet = (
        rows(csv_bytes(run, table=name)),
        pq.read_table(pa.BufferReader(parquet_table(run, table=name))),
    )
    assert len(of_csv) == of_parquet.num_rows
    assert of_parquet.column_names[0] == "rank"
    if name in TABLES:
        assert of_parquet.num_rows == sum(run.table(name, rank=rank).num_rows for rank in run.ranks)
        assert of_parquet.column_names[1:] == [column.name for column in TABLES[name]]


def test_one_rank_alone():
    found = rows(csv_bytes(load_run(FSDP2), table="units", rank=1))
    assert [(row["rank"], row["name"]) for row in found] == [
        ("1", "layers.0"), ("1", "layers.1"), ("1", "layers.2"), ("1", "layers.3"), ("1", "")
    ]  # fmt: skip


def test_a_name_is_no_formula_in_a_spreadsheet_and_no_markup_in_markdown():
    run = RunBuilder().unit(HOSTILE).alloc(at=1, size=4, unit=0).build()
    assert rows(csv_bytes(run, table="units"))[0]["name"] == f"'{HOSTILE}"
    text = markdown_bytes(run, table="units").decode()
    assert "=cmd\\|'/c calc'\\!A1 &lt;b&gt;\\|&#64;me" in text
    assert "<b>" not in markdown_bytes(run).decode()


def test_the_report_in_markdown():
    text = markdown_bytes(load_run(FSDP2)).decode()
    assert text.startswith(
        "# gpt-fsdp2-2ranks\n\nFSDP2 reshard\\_after\\_forward=True, 5 units, 2 ranks\n\nPeak **10.98 MiB** "
    )
    assert "| optimizer state | 3.52 MiB | 32.1 % |" in text
    assert "| layers.3 | 197,120 | 385.00 KiB | 770.00 KiB | 2 | 8 | 8 |" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "x.csv", "--table", "secrets"], "--table secrets: no such table; give one of timeline, peaks, "),
        (
            ["-o", "x.md", "--table", "allocations"],
            "--table allocations: 6,512 rows are no page of Markdown; export .csv",
        ),
        (["-o", "x.csv", "--rank", "9"], f"{FSDP2}: rank 9 recorded nothing here (ranks: 0, 1)"),
        (["-o", "x.svg", "--rank", "9"], f"{FSDP2}: rank 9 recorded nothing here (ranks: 0, 1)"),
        (["-o", "x.html", "--rank", "1"], "x.html: --rank is of .csv, .parquet, .md, .svg; leave it out or "),
        (["-o", "x.svg", "--table", "steps"], "x.svg: --table is of .csv, .parquet, .md; leave it out or "),
        (["-o", "x.csv", "--chart", "peak"], "x.csv: --chart is of .svg; leave it out or "),
        (["-o", "x.md", "--rank", "1"], "x.md: --rank is of one table; name it with --table"),
        (["-o", "x.pickle"], "x.pickle: unknown ending; give one of .fsdpz, .html, "),
        ([], "say where to: -o OUT; see fsdp-profile export --help"),
        ([str(FSDP2), "-o", "x.csv"], "x.csv: takes one run; only .html compares two"),
        ([str(FSDP2), str(FSDP2), "-o", "x.html"], "3 runs: a report compares two; for more use fsdp-profile compare"),
    ],
)
def test_bad_input_is_one_line(capsys, monkeypatch, tmp_path, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(FSDP2), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fsdp-profile: {told}") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_is_valid_svg_with_its_numbers_and_nothing_that_acts(chart):
    text = chart_svg(load_run(FSDP2), chart=chart)
    root = ElementTree.fromstring(text)
    tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert tags <= {"svg", "title", "rect", "text", "path", "g"}
    assert "href" not in text and text.count("http") == 1
    assert bytes_of_titles(root)[0].startswith("gpt-fsdp2-2ranks: ")
    assert "10.98 MiB" in text or chart == "units"


def bytes_of_titles(root: ElementTree.Element) -> list[str]:
    return [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]


def test_the_bar_of_the_peak_has_each_category_to_scale():
    run = load_run(FSDP2)
    root = ElementTree.fromstring(chart_svg(run, chart="peak"))
    bars = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("height") == "34"]
    total = peak(run, rank=0).allocated_bytes
    widths = sorted((float(e.get("width", 0)) / 936 * total for e in bars), reverse=True)
    assert widths == pytest.approx(sorted(peak(run, rank=0).by_category.values(), reverse=True), abs=total * 0.01 / 936)


def test_ranks_are_bars_on_one_scale():
    run = RunBuilder().rank(0).alloc(at=1, size=1024).rank(1).alloc(at=1, size=4096).build()
    root = ElementTree.fromstring(chart_svg(run, chart="ranks"))
    bars = [float(e.get("width", 0)) for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("height") == "15"]
    assert bars == [180.0, 720.0]


def test_units_are_drawn_where_they_were_gathered():
    b = RunBuilder().step(0, 0, 1000).phase(Phase.FORWARD, 0, 1000).unit("").unit("layers.0").alloc(at=500, size=4)
    b.span(0, SpanKind.UNSHARDED, 0, 1000).span(1, SpanKind.UNSHARDED, 250, 500)
    root = ElementTree.fromstring(chart_svg(b.build(), chart="units"))
    bars = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("height") == "15"]
    width = 960 - 150 - 12
    assert [(float(e.get("x", 0)), float(e.get("width", 0))) for e in bars] == [
        (150.0, width), (round(150 + width / 4, 1), width / 4)
    ]  # fmt: skip


@pytest.mark.parametrize("chart", CHARTS)
def test_names_in_a_chart_are_text(chart):
    b = RunBuilder(HOSTILE).unit(HOSTILE).span(0, SpanKind.UNSHARDED, 0, 8).alloc(at=1, free=9, size=4)
    text = chart_svg(b.build(), chart=chart)
    assert HOSTILE in bytes_of_titles(ElementTree.fromstring(text))[0]
    assert "<b>" not in text
