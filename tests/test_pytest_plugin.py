"""The pytest marker: a limit that is kept, one that is broken, and one that nothing was measured for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording import ROOT, SCRIPTS

FSDP2 = ROOT / "sample_runs" / "gpt-fsdp2-2ranks"

# A test that is given a run as if it had recorded it: recording takes seconds.
GIVEN = f"""
import pytest
from fsdp_profile.pytest_plugin import _RUNS
from pathlib import Path

@pytest.fixture
def given(request):
    request.node.stash.setdefault(_RUNS, []).append(Path({str(FSDP2)!r}))
"""
CUDA = """
import sys, types

class Cuda:
    peak = 5 << 30
    def is_available(self): return True
    def is_initialized(self): return True
    def device_count(self): return 2
    def reset_peak_memory_stats(self, device): self.peak = 0
    def max_memory_allocated(self, device): return self.peak if device else 0

sys.modules["torch"] = types.SimpleNamespace(cuda=Cuda())
"""


def outcome(folder: Path, code: str) -> str:
    """What pytest says of a file with this code, the lines of failures and the last one."""
    (folder / "test_it.py").write_text(code)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "-W",
        "error",
        "test_it.py",
    ]
    # Where CI is set, pytest writes its summary in full: the line would come twice.
    plain = {name: value for name, value in os.environ.items() if name not in {"CI", "BUILD_NUMBER"}}
    done = subprocess.run(words, cwd=folder, env=plain, capture_output=True, text=True, timeout=200)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("limit_vram", "E ")) or " in " in line]
    return "\n".join(line.rpartition(" in ")[0] if line.endswith("s") and " in " in line else line for line in lines)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('"11MiB"', "1 passed"),
        ('"11MiB", strategy="fsdp2"', "1 passed"),
        (
            '"10MiB"',
            "limit_vram: peak 10.98 MiB, 999.44 KiB over the limit of 10.00 MiB on rank 0 in BACKWARD of step 1, unit "
            "layers.1 at work: OPTIMIZER_STATE 3.52 MiB, SHARDED_PARAM 1.76 MiB, ACTIVATION 1.51 MiB\n1 failed",
        ),
        ('"11MiB", strategy="DDP"', "limit_vram: no run of strategy DDP was recorded, but of FSDP2\n1 failed"),
        ('"lots"', "limit_vram: 'lots' is not a size; write it as 512MiB, 2GiB or 2GB\n1 failed"),
        ("", 'limit_vram: write it as @pytest.mark.limit_vram("2GiB", strategy="FSDP2")\n1 failed'),
    ],
)
def test_a_recorded_run_is_held_against_the_mark(tmp_path, mark, said):
    assert outcome(tmp_path, f"{GIVEN}\n@pytest.mark.limit_vram({mark})\ndef test_it(given): pass\n") == said


def test_a_test_that_measured_nothing_fails(tmp_path):
    assert outcome(tmp_path, "import pytest\n@pytest.mark.limit_vram('1GiB')\ndef test_it(): pass\n") == (
        "limit_vram: nothing was measured; record a run with the record_run fixture, or train on a CUDA device\n"
        "1 failed"
    )


def test_a_test_that_fails_by_itself_says_its_own(tmp_path):
    found = outcome(tmp_path, "import pytest\n@pytest.mark.limit_vram('1GiB')\ndef test_it(): assert 1 == 2\n")
    assert found.split() == ["E", "assert", "1", "==", "2", "1", "failed"]


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        ("1 << 30", "1 passed"),
        ("3 << 30", "limit_vram: peak 3.00 GiB on cuda:1, 1.00 GiB over the limit of 2.00 GiB\n1 failed"),
    ],
)
def test_without_a_run_the_devices_of_the_process_count_from_the_start_of_the_test(tmp_path, peak, said):
    body = f"def test_it(): sys.modules['torch'].cuda.peak = {peak}"
    assert outcome(tmp_path, f"import pytest\n{CUDA}\n@pytest.mark.limit_vram('2GiB')\n{body}\n") == said


def test_the_fixture_records_and_a_broken_limit_names_the_peak(tmp_path):
    script = SCRIPTS / "tiny_fsdp2.py"
    code = f"""
import pytest

@pytest.mark.limit_vram("1KiB", strategy="FSDP2")
def test_it(record_run):
    run = record_run({str(script)!r}, "--steps", "2")
    assert run.manifest.complete and run.ranks == (0, 1)
"""
    found = outcome(tmp_path, code)
    assert found.startswith("limit_vram: peak ") and "over the limit of 1.00 KiB on rank " in found
    assert found.endswith("\n1 failed")


def test_a_script_that_fails_fails_the_test(tmp_path):
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    code = "def test_it(record_run): record_run('bad.py', nproc_per_node=1)\n"
    (tmp_path / "test_it.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_it.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "bad.py: exit code " in done.stdout and "1 failed" in done.stdout


def test_the_plugin_imports_nothing_heavy():
    heavy = {"torch", "pyarrow", "numpy", "rich"}
    code = f"import fsdp_profile.pytest_plugin, sys; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
