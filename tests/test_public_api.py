"""What other programs may rely on: names, verbs and the price of a start."""

import subprocess
import sys

import fsdp_profile
from fsdp_profile.commands import verbs
from fsdp_profile.core.schema import TABLES


def test_the_package_exports_its_version_and_the_door_for_notebooks() -> None:
    assert fsdp_profile.__all__ == ["__version__", "compare", "load_run"]
    assert fsdp_profile.__version__.count(".") == 2
    assert all(hasattr(fsdp_profile, name) for name in fsdp_profile.__all__)
    assert not hasattr(fsdp_profile, "load_runs")


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = (
        "import sys; import fsdp_profile; print([m for m in sys.modules if m.startswith(('fsdp_profile.', 'pyarrow'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_verbs() -> None:
    assert list(verbs()) == [
        "check", "compare", "dashboard", "demo", "doctor", "export", "hta", "import", "plan", "run", "show",
    ]  # fmt: skip
    for module in verbs().values():
        assert callable(module.add_arguments) and callable(module.run)
        assert (module.__doc__ or "").strip()


def test_tables_of_schema_2() -> None:
    assert list(TABLES) == [
        "steps", "phases", "units", "unit_spans", "allocations", "memory_samples", "memory_pyramid", "collectives",
        "kernels", "segments", "pending_frees", "host_states", "ooms", "device_samples", "losses", "tags",
    ]  # fmt: skip


def test_help_imports_neither_torch_nor_streamlit_nor_frames() -> None:
    code = (
        "import sys; from fsdp_profile.commands import build_parser; build_parser().format_help(); "
        "print(sorted({'torch', 'streamlit', 'pyarrow', 'numpy', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
