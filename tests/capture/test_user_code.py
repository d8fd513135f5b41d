"""--stacks: the line of own code that allocated each block."""

import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.memory.call_sites import modules_at, source_lines
from fsdp_profile.analysis.memory.ledger import peak_of_steps, timeline
from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.user_code import UserCode
from fsdp_profile.core.categories import Category


def line_of(statement: str) -> int:
    lines = (SCRIPTS / "faulty.py").read_text().splitlines()
    [found] = [number for number, line in enumerate(lines, start=1) if statement in line]
    return found


def test_activations_and_states_are_put_on_the_lines_that_made_them(tmp_path: Path) -> None:
    script = str(SCRIPTS / "faulty.py")
    done = fsdp_profile(
        "run", "-n", "2", "--no-kineto", "--stacks", "--steps", "0:2", "-o", str(tmp_path / "run"), script, "plain"
    )
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert run.manifest.warnings == []
    peak = peak_of_steps(run, rank=0)[1]
    lines = source_lines(run, rank=0, event=peak.event)
    assert lines is not None
    by_line = {(Path(line.file).name, line.line): line for line in lines}
    assert {name for name, _ in by_line} == {"faulty.py"}
    shards = 2 * 256 * 1024 * 4 * 4 // 2  # four blocks, two Linear layers, fp32, two ranks
    states = by_line["faulty.py", line_of("    optimizer.step()")]
    assert states.by_category == {next(iter(states.by_category)): 2 * shards + 8 * 4}
    assert str(next(iter(states.by_category))) == "OPTIMIZER_STATE"
    assert sum(line.size_bytes for line in lines) >= 0.99 * peak.allocated_bytes

    # When most activations are alive: of 8 rows the ReLU's result and the block's, made in the block's own forward.
    ledger = timeline(run, rank=0, step=1)
    fullest = int(ledger.event[np.argmax(ledger.by_category[Category.ACTIVATION])])
    modules = modules_at(run, rank=0, event=fullest)
    assert modules is not None
    held = {module.module: module.activation_bytes for module in modules}
    assert {path: held[path] for path in "012"} == dict.fromkeys("012", 8 * 1024 * 4 + 8 * 256 * 4)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserCode:
    """Run from a folder with a script, beside a library."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "lib" / "site-packages" / "library").mkdir(parents=True)
    (tmp_path / "lib" / "site-packages" / "library" / "code.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "lib" / "site-packages"), *sys.path])
    return UserCode()


def frame(file: str, line: int, name: str) -> SimpleNamespace:
    return SimpleNamespace(file_name=file, line_number=line, function_name=name)


def test_own_files_are_neither_packages_nor_the_standard_library(own: UserCode, tmp_path: Path) -> None:
    assert own.shown("train.py") == own.shown(str(tmp_path / "train.py")) == "train.py"
    for foreign in ("library/code.py", "logging/__init__.py", sysconfig.get_paths()["stdlib"] + "/typing.py",
                    "<string>", "missing.py", "fsdp_profile/schema.py"):  # fmt: skip
        assert own.shown(foreign) == ""


def test_the_callers_line_comes_first_then_the_function_itself(own: UserCode) -> None:
    node = SimpleNamespace(extra_fields=SimpleNamespace(caller=frame("train.py", 7, "main"), callsite=None))
    assert own.line_of(node) == "train.py:7 main"
    entered = SimpleNamespace(caller=frame("library/code.py", 3, "call"), callsite=frame("train.py", 1, "forward"))
    assert own.line_of(SimpleNamespace(extra_fields=entered)) == "train.py:1 forward"
    assert own.line_of_frames([{"filename": "library/code.py"}, {"filename": "train.py", "line": 9, "name": "f"}]) == (
        "train.py:9 f"
    )


def test_names_that_are_garbage_tell_of_no_line(own: UserCode) -> None:
    class Gone:
        @property
        def extra_fields(self) -> object:
            raise UnicodeDecodeError("utf-8", b"\xc6", 0, 1, "invalid")

    assert own.line_of(Gone()) == ""
