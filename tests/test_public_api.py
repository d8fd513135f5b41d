"""What other programs may rely on: names, verbs and the price of a start."""

import subprocess
import sys

import fsdp_profile
from fsdp_profile.commands import verbs
from fsdp_profile.schema import CATEGORIES, TABLES


def test_the_package_exports_its_version_only() -> None:
    assert fsdp_profile.__all__ == ["__version__"]
    assert fsdp_profile.__version__.count(".") == 2


def test_verbs() -> None:
    assert list(verbs()) == ["compare", "dashboard", "demo", "hta", "import", "plan", "run", "show"]
    for module in verbs().values():
        assert callable(module.add_arguments) and callable(module.run)
        assert (module.__doc__ or "").strip()


def test_categories_and_tables_of_schema_1() -> None:
    assert [str(c) for c in CATEGORIES] == [
        "SHARDED_PARAM", "UNSHARDED_PARAM", "SHARDED_GRAD", "UNSHARDED_GRAD", "OPTIMIZER_STATE", "ACTIVATION",
        "ALL_GATHER", "REDUCE_SCATTER", "BUCKET", "BUFFER", "INPUT", "OPTIMIZER_TEMPORARY", "TEMPORARY", "UNKNOWN",
    ]  # fmt: skip
    assert list(TABLES) == [
        "steps", "phases", "units", "unit_spans", "allocations", "memory_samples", "collectives", "kernels",
        "segments", "pending_frees", "ooms", "device_samples", "tags",
    ]  # fmt: skip


def test_help_imports_neither_torch_nor_streamlit_nor_frames() -> None:
    code = (
        "import sys; from fsdp_profile.commands import build_parser; build_parser().format_help(); "
        "print(sorted({'torch', 'streamlit', 'pyarrow', 'numpy', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
