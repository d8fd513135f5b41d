"""What other programs may rely on: names, verbs and the price of a start."""

import inspect
import re
import subprocess
import sys
from typing import Any, get_type_hints

import pytest
from recording import ROOT

import fsdp_profile
from fsdp_profile.commands import verbs
from fsdp_profile.core import errors
from fsdp_profile.core.schema import TABLES

PUBLIC = [
    "Finding", "FsdpProfileError", "InputError", "MissingExtraError", "OutputError", "Peak", "Run", "RunComparison",
    "SchemaError", "SimulationError", "UsageError", "__version__", "compare", "import_", "load_run", "profile",
]  # fmt: skip


def test_the_package_exports_its_public_names_and_no_others() -> None:
    assert fsdp_profile.__all__ == PUBLIC
    assert fsdp_profile.__version__.count(".") == 2
    for name in set(PUBLIC) - {"__version__"}:
        assert getattr(fsdp_profile, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'load_runs'"):
        fsdp_profile.load_runs  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_of_the_package_is_public() -> None:
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert own == {name for name in PUBLIC if name.endswith("Error")}


def test_the_api_page_lists_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)", text, re.M)) == sorted(name for name in PUBLIC if name != "__version__")


def test_the_public_api_is_typed_without_any() -> None:
    for name in ("load_run", "compare", "import_", "profile"):
        assert Any not in get_type_hints(getattr(fsdp_profile, name)).values()
    for kind in (fsdp_profile.Run, fsdp_profile.RunComparison):
        for name, member in vars(kind).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                assert "Any" not in str(inspect.signature(member)), name


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
