"""What is installed from the built wheel works alone: the .pth file, the commands, the files beside the code."""

import os
import subprocess
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from recording import ROOT, SCRIPTS

pytestmark = pytest.mark.slow

LOADED = "import sys; print([name for name in sys.modules if name.startswith('fsdp')])"


class Environment:
    """A fresh virtual environment that finds this one's packages, but not the project: that comes from the wheel."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        self.site = next((folder / "lib").glob("python*/site-packages"))
        (self.site / "packages_of_the_tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def python(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
        command, told = [str(self.bin / "python"), *arguments], {"OMP_NUM_THREADS": "1", **environment}
        return subprocess.run(
            command, env=clean | told, cwd=self.site.parent, capture_output=True, text=True, timeout=280
        )

    def pip(self, *arguments: str) -> str:
        done = self.python("-m", "pip", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    builder = Environment(folder / "builder")
    if builder.python("-m", "pip", "install", "--quiet", "hatchling").returncode:
        pytest.skip("hatchling cannot be installed here")
    done = subprocess.run(
        [str(builder.bin / "python"), "-m", "hatchling", "build", "--directory", str(folder / "dist")],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def fresh(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel in it."""
    environment = Environment(tmp_path_factory.mktemp("fresh") / "venv")
    environment.pip("install", "--quiet", "--no-deps", "--no-index", str(next(built.glob("*.whl"))))
    return environment


def tracked(*folders: str) -> set[str]:
    """Files of the project as git knows them."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: what belongs in is not known")
    return set(listed.stdout.splitlines())


def test_the_wheel_and_the_source_hold_every_file_of_the_project(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    moved = {"profiler/": "", "dashboard/": "", "examples/": "fsdp_profile/_examples/",
             "sample_runs/": "fsdp_profile/_sample_runs/"}  # fmt: skip
    expected = {
        to + name.removeprefix(folder)
        for folder, to in moved.items()
        for name in tracked(folder)
    }  # fmt: skip
    assert inside == expected
    assert {"fsdp_profile_autostart.pth", "fsdp_dashboard/app.py", "fsdp_profile/export/assets/report.js"} <= inside
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        packed = {name.partition("/")[2] for name in source.getnames()}
    assert tracked("profiler", "dashboard", "examples", "sample_runs", "tests", "docs") <= packed
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "CHANGELOG.md"} <= packed


def test_the_installed_variable_records_and_without_it_nothing_of_us_is_loaded(
    fresh: Environment, tmp_path: Path
) -> None:
    assert fresh.python("-c", LOADED).stdout == "[]\n"
    assert fresh.python("-c", LOADED, FSDP_PROFILE="").stdout == "[]\n"
    spawned, run = str(SCRIPTS / "spawned.py"), tmp_path / "run"
    bare = fresh.python(spawned)
    ours = fresh.python(spawned, FSDP_PROFILE="1", FSDP_PROFILE_OUTPUT=str(run))
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, bare.stdout, bare.stderr)
    shown = fresh.python("-m", "fsdp_profile", "show", str(run))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "DDP" in shown.stdout
    found = fresh.python("-c", "import fsdp_profile, fsdp_dashboard; print(fsdp_profile.__file__)").stdout
    assert found.strip() == str(fresh.site / "fsdp_profile" / "__init__.py")


def test_the_installed_command_compares_the_sample_runs_it_brought(fresh: Environment) -> None:
    samples = fresh.site / "fsdp_profile" / "_sample_runs"
    command = [
        str(fresh.bin / "fsdp-profile"),
        "compare",
        str(samples / "gpt-ddp-2ranks"),
        str(samples / "gpt-fsdp2-2ranks"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gpt-fsdp2-2ranks" in done.stdout


def test_uninstalled_it_leaves_nothing(fresh: Environment) -> None:
    fresh.pip("uninstall", "--yes", "fsdp-profile")
    assert [path.name for path in fresh.site.glob("*fsdp*")] == []
    assert fresh.python("-c", LOADED, FSDP_PROFILE="1").stdout == "[]\n"
