"""Import files through the command, and read the run that they become."""

from pathlib import Path

from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.commands import main

MIB, US = 1 << 20, 1_000


BASE_NS = 1_790_857_026_000_000_000


def imported(tmp_path: Path, *paths: Path) -> Run:
    """The run that the files become."""
    folder = tmp_path / "imported"
    assert main(["import", *map(str, paths), "-o", str(folder)]) == 0
    return load_run(folder)


def refused(capsys, tmp_path: Path, *paths: Path) -> str:
    """The one line with which the import ends; nothing is left behind."""
    folder = tmp_path / "refused"
    assert main(["import", *map(str, paths), "-o", str(folder)]) == 2
    done = capsys.readouterr()
    assert (done.out, done.err.count("\n"), folder.exists()) == ("", 1, False)
    return done.err.removeprefix("fsdp-profile: ").rstrip("\n")


def pair(cases: Path, name: str) -> list[Path]:
    found = sorted(cases.glob(f"{name}*"))
    assert len(found) == 2
    return found
