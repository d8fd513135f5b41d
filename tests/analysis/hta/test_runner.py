"""HTA in a process of its own: what it says, what it cannot, and what happens without it."""

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from builder import RunBuilder
from ingest.kineto.kineto_factory import document, kernel, launch, timed

from fsdp_profile.analysis.hta import runner as hta
from fsdp_profile.analysis.hta.runner import HtaTable, device_traces, hta_tables, tables_of_traces
from fsdp_profile.commands import main
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, MissingExtraError


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hta.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fsdp-profile\[hta\]'"):
        tables_of_traces({0: tmp_path / "kineto.json"})


def test_a_cpu_run_has_nothing_for_hta(tmp_path: Path) -> None:
    run = RunBuilder(path=tmp_path / "run").alloc(at=0, size=1).build()
    with pytest.raises(InputError, match="no trace with device activity for HTA \\(it ran on CPU\\)"):
        hta_tables(run)


FAKE = '''
class Frame:
    columns = ["rank", "comp_comm_overlap_pctg"]
    def to_json(self, orient): return "[[0, 25.0]]"
class TraceAnalysis:
    def __init__(self, trace_files, trace_dir, include_last_profiler_step):
        print("chatter")
        self.t = self
        self.files = trace_files
    def get_ranks(self): return sorted(self.files)
    def get_comm_comp_overlap(self, visualize): return Frame()
    def get_temporal_breakdown(self, visualize): raise IndexError("list index out of range\\nmore")
    def get_idle_time_breakdown(self, ranks, visualize):
        assert ranks == sorted(self.files)
        return (Frame(), None)
    def get_gpu_kernel_breakdown(self, visualize):
        import os
        assert os.environ["HTA_DISABLE_NS_ROUNDING"] == "1"
        return (Frame(),)
'''  # fmt: skip


@pytest.fixture
def fake_hta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `hta` that answers two questions and fails at one."""
    package = tmp_path / "fake" / "hta"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "trace_analysis.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "hta", ModuleType("hta"))
    monkeypatch.setattr(hta.importlib.util, "find_spec", lambda name: object())


def test_each_analysis_is_a_table_or_hta_s_own_words(fake_hta: None, tmp_path: Path) -> None:
    found = tables_of_traces({0: tmp_path / "kineto.json"})
    assert [t.name for t in found] == [
        "temporal breakdown", "communication computation overlap", "idle time", "kernel breakdown",
    ]  # fmt: skip
    assert found[0] == HtaTable(
        name="temporal breakdown", columns=(), rows=(), error="IndexError: list index out of range"
    )
    assert (found[1].columns, found[1].rows) == (("rank", "comp_comm_overlap_pctg"), ((0, 25.0),))
    assert [t.error for t in found[1:]] == [None, None, None]


def traced(path: Path) -> tuple[RunBuilder, str]:
    """Rank 0 computes 10 of the 40 ns in which it communicates; what its trace holds."""
    run = (
        RunBuilder(path=path)
        .set(device_type="cuda")
        .collective("ALL_GATHER", 0, 40)
        .kernel(10, 20)
        .kernel(60, 80)
        .alloc(at=0, size=1)
    )
    return run, json.dumps(document([launch(1, 1), kernel("gemm", 2, 3, correlation=1), timed("aten::mm", 0, 5)]))


def test_the_verb_shows_both(fake_hta: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder, text = traced(tmp_path / "run")
    run = builder.build()
    raw = layout.raw_dir(run.path, 0)
    raw.mkdir()
    (raw / "kineto.json").write_text(text)
    assert main(["hta", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "none: IndexError: list index out of range" in out
    assert "comp comm overlap pctg" in out
    assert re.search(
        r"^ +0 +25.00 % +25.00 % +- +25.00 % +- +37.50 %$", out, re.M
    )  # ours: 10 of 40, 20 and 30 of 80 ns
    assert "the same to two decimals wherever both have a number" in out


def test_traces_of_an_imported_run_are_read_where_they_lie(
    fake_hta: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder, text = traced(tmp_path / "run")
    trace = {"kind": "trace", "rank": 0, "file": "t.json", "path": str(tmp_path / "t.json")}
    imported = [trace, {"kind": "memory snapshot", "rank": 0, "file": "s"}]
    run = builder.set(extra={"imported": imported}).build()
    assert main(["hta", str(run.path)]) == 2
    error = capsys.readouterr().err
    assert "HTA reads the traces themselves, and t.json is not where it was at the import" in error
    assert f"fsdp-profile hta {run.path} --traces FOLDER" in error

    (tmp_path / "t.json").write_text(text)
    assert main(["hta", str(run.path)]) == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t.json").rename(tmp_path / "elsewhere" / "t.json")
    assert main(["hta", str(run.path), "--traces", str(tmp_path)]) == 2
    assert f"t.json is not in {tmp_path}" in capsys.readouterr().err
    assert main(["hta", str(run.path), "--traces", str(tmp_path / "elsewhere")]) == 0


def test_a_file_outside_the_folder_is_never_read(fake_hta: None, tmp_path: Path) -> None:
    builder, text = traced(tmp_path / "run")
    (tmp_path / "secret.json").write_text(text)
    (tmp_path / "folder").mkdir()
    imported = [{"kind": "trace", "rank": 0, "file": "../secret.json"}]
    run = builder.set(extra={"imported": imported}).build()
    with pytest.raises(InputError, match=r"secret\.json is not in"):
        device_traces(run, folder=tmp_path / "folder")


def test_a_crash_of_hta_is_one_table_with_its_last_words(
    fake_hta: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake" / "hta" / "trace_analysis.py").write_text("raise SystemExit('no kernels here')")
    found = tables_of_traces({0: tmp_path / "kineto.json"})
    assert [t.error for t in found] == ["HTA ended with exit code 1: no kernels here"]
