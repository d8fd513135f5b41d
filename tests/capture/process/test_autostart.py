"""`FSDP_PROFILE=1` records the ranks of any launcher."""

import shutil
from pathlib import Path

from capture.launch.launching import SPAWNED, assert_whole, python
from recording import ROOT

from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.schema import Strategy


def test_a_variable_alone_records_any_launcher_s_ranks(tmp_path: Path) -> None:
    """The .pth file that the wheel installs, here in a folder of its own."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(ROOT / "profiler" / "fsdp_profile_autostart.pth", site)
    (site / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(site)!r})\n")
    told = {"PYTHONPATH": str(site), "FSDP_PROFILE": "1", "FSDP_PROFILE_OUTPUT": str(tmp_path / "run")}
    bare = python(SPAWNED)
    ours = python(SPAWNED, **told)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, bare.stdout, bare.stderr)
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.DDP)
    off = python("-c", "print(1)", PYTHONPATH=str(site), FSDP_PROFILE="yes")
    assert (off.stdout, off.stderr) == ("1\n", "fsdp-profile: FSDP_PROFILE must be 1 to record; nothing is recorded\n")
