"""The door for Python and notebooks: the page's examples run, and what shows itself is harmless."""

import doctest
import shutil
from pathlib import Path

import pytest
from builder import RunBuilder
from recording import ROOT

import fsdp_profile
from fsdp_profile.analysis import run as analysis
from fsdp_profile.analysis.memory.ledger import peak
from fsdp_profile.core.errors import InputError
from fsdp_profile.export.bundle import bundle_bytes

HOSTILE = "<script>alert(1)</script>"


def test_the_examples_of_the_page_run(monkeypatch, tmp_path):
    shutil.copytree(ROOT / "sample_runs", tmp_path / "sample_runs")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "notebook.md").read_text()
    examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, "notebook.md", None, 0)
    runner = doctest.DocTestRunner()
    runner.run(examples)
    assert (runner.failures, runner.tries > 15) == (0, True)
    assert (tmp_path / "memory.svg").read_text().startswith("<svg")


def test_a_bundle_opens_like_its_run(tmp_path):
    run = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-ddp-2ranks")
    path = tmp_path / "x.fsdpz"
    path.write_bytes(bundle_bytes(run))
    assert fsdp_profile.load_run(path).summary() == run.summary()


def test_what_a_notebook_shows():
    run = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    page = run._repr_html_()
    assert "Peak <b>10.98 MiB</b> allocated on rank 0" in page and "3.52 MiB" in page
    assert run.memory_figure()._repr_svg_() == run.memory_figure().svg
    other = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-hsdp-4ranks")
    ddp = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-ddp-4ranks")
    assert "HSDP needs" in fsdp_profile.compare(ddp, other)._repr_html_()
    assert "Of 3 runs" in fsdp_profile.compare(ddp, other, run)._repr_html_()


def test_names_are_text_where_a_notebook_shows_them(tmp_path: Path):
    built = RunBuilder(HOSTILE, path=tmp_path / "run").unit(HOSTILE).alloc(at=1, free=9, size=4, unit=0).build()
    run = fsdp_profile.load_run(built.path)
    for page in (run._repr_html_(), run.memory_figure().svg, run.peak_figure().svg):
        assert "<script" not in page
    assert "<script" not in fsdp_profile.compare(run, run)._repr_html_()


def test_a_run_without_memory_shows_itself_too():
    run = fsdp_profile.load_run(RunBuilder().build().path)
    assert repr(run) == "<run run: FSDP2, rank 0, no allocator events>"
    assert "no allocator events of a training step" in run._repr_html_()
    assert run.peak is None
    with pytest.raises(InputError, match="name a rank"):
        run.units()


def test_a_missing_pandas_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    run = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-ddp-2ranks")
    with pytest.raises(fsdp_profile.MissingExtraError, match=r"pip install 'fsdp-profile\[dashboard\]'"):
        run.frame()


def test_a_public_run_is_the_run_of_the_analysis(tmp_path):
    run = fsdp_profile.load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    assert isinstance(run, fsdp_profile.Run) and isinstance(run, analysis.Run)
    assert peak(run, rank=0) == run.peak
    assert isinstance(run.peak, fsdp_profile.Peak)
    assert all(isinstance(one, fsdp_profile.Finding) for one in run.findings())


def test_a_trace_is_imported_as_a_run(tmp_path):
    path = ROOT / "tests" / "data" / "kineto" / "00-good-rank0.json"
    run = fsdp_profile.import_([path], tmp_path / "run")
    assert (run.name, run.ranks, run.manifest.is_imported) == ("run", (0,), True)
    with pytest.raises(fsdp_profile.OutputError, match="not empty"):
        fsdp_profile.import_([path], tmp_path / "run")
