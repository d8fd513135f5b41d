"""The pytest marker: a limit that is kept, one that is broken, and one that nothing was measured for."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

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


def outcomes(folder: Path, code: str) -> dict[str, str]:
    """What pytest says of the tests of a file with this code: name -> "passed", or the message of the failure."""
    (folder / "test_it.py").write_text(code)
    words = ["-q", "-p", "no:cacheprovider", "--strict-markers", "-W", "error", "--junitxml=out.xml", "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert (folder / "out.xml").exists(), done.stdout + done.stderr
    cases = ElementTree.parse(folder / "out.xml").iter("testcase")
    failures = {case.attrib["name"]: case.find("failure") for case in cases}
    return {name: "passed" if found is None else found.attrib["message"] for name, found in failures.items()}


def test_a_recorded_run_is_held_against_the_mark(tmp_path):
    marks = ['"11MiB"', '"11MiB", strategy="fsdp2"', '"10MiB"', '"11MiB", strategy="DDP"', '"lots"', ""]
    tests = [f"@pytest.mark.limit_vram({mark})\ndef test_{i}(given): pass\n" for i, mark in enumerate(marks)]
    nothing = "@pytest.mark.limit_vram('1GiB')\ndef test_nothing(): pass\n"
    own = "@pytest.mark.limit_vram('1GiB')\ndef test_own(): assert 1 == 2\n"
    assert outcomes(tmp_path, "\n".join([GIVEN, *tests, nothing, own])) == {
        "test_0": "passed",
        "test_1": "passed",
        "test_2": "Failed: limit_vram: peak 10.98 MiB, 999.44 KiB over the limit of 10.00 MiB on rank 0 in backward of "
        "step 1, active unit layers.2: optimizer state 3.52 MiB, parameters 1.76 MiB, activations 1.51 MiB",
        "test_3": "Failed: limit_vram: no run of strategy DDP was recorded, but of FSDP2",
        "test_4": "Failed: limit_vram: 'lots' is not a size; write it as 512MiB, 2GiB or 2GB",
        "test_5": 'Failed: limit_vram: write it as @pytest.mark.limit_vram("2GiB", strategy="FSDP2")',
        "test_nothing": "Failed: limit_vram: nothing was measured; record a run with the record_run fixture, or train "
        "on a CUDA device",
        "test_own": "assert 1 == 2",
    }


def test_without_a_run_the_devices_of_the_process_count_from_the_start_of_the_test(tmp_path):
    bodies = {"below": "1 << 30", "above": "3 << 30"}
    tests = [
        f"@pytest.mark.limit_vram('2GiB')\ndef test_{name}(): sys.modules['torch'].cuda.peak = {peak}\n"
        for name, peak in bodies.items()
    ]
    assert outcomes(tmp_path, "\n".join(["import pytest", CUDA, *tests])) == {
        "test_below": "passed",
        "test_above": "Failed: limit_vram: peak 3.00 GiB on cuda:1, 1.00 GiB over the limit of 2.00 GiB",
    }


def test_the_fixture_records_and_a_broken_limit_names_the_peak(tmp_path):
    script = SCRIPTS / "tiny_fsdp2.py"
    code = f"""
import pytest

@pytest.mark.limit_vram("1KiB", strategy="FSDP2")
def test_it(record_run):
    run = record_run({str(script)!r}, "--steps", "2")
    assert run.manifest.complete and run.ranks == (0, 1)
"""
    found = outcomes(tmp_path, code)["test_it"]
    assert found.startswith("Failed: limit_vram: peak ") and "over the limit of 1.00 KiB on rank " in found


def test_a_script_that_fails_fails_the_test(tmp_path):
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    code = "def test_it(record_run): record_run('bad.py', nproc_per_node=1)\n"
    assert "bad.py: exit code " in outcomes(tmp_path, code)["test_it"]


def test_the_plugin_imports_nothing_heavy():
    heavy = {"torch", "pyarrow", "numpy", "rich"}
    code = f"import fsdp_profile.pytest_plugin, sys; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
