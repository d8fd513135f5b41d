"""Who may import whom. A floor that is not listed may import only the standard library."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROFILER, DASHBOARD = ROOT / "profiler" / "fsdp_profile", ROOT / "dashboard" / "fsdp_dashboard"
BASE = {f"fsdp_profile.{name}" for name in ("schema", "errors", "layout", "humanize", "colours")}
FLOORS = ("capture", "ingest", "analysis", "plan", "report", "export", "commands")
FRAMES = {"numpy", "pyarrow", "msgspec"}
FORMULAS = {
    "__init__.py",
    "activations.py",
    "deepspeed.py",
    "devices.py",
    "formulas.py",
    "recipes.py",
    "search.py",
    "strategies.py",
}
PLAN = BASE | FRAMES | {"fsdp_profile.plan", "fsdp_profile.analysis", "fsdp_profile.ingest"}

ALLOWED = {
    PROFILER / "schema.py": set(),
    PROFILER / "errors.py": set(),
    PROFILER / "layout.py": {"fsdp_profile.errors"},
    PROFILER / "humanize.py": set(),
    PROFILER / "machine.py": {"fsdp_profile.humanize", "fsdp_profile.schema", "psutil", "pynvml"},
    PROFILER / "colours.py": {"fsdp_profile.schema"},
    PROFILER / "capture": BASE | {"fsdp_profile.capture", "torch", "pynvml", "psutil"},
    PROFILER / "ingest": BASE | FRAMES | {"fsdp_profile.ingest", "isal"},
    PROFILER / "analysis": BASE | FRAMES | {"fsdp_profile.analysis", "fsdp_profile.ingest", "hta"},
    **{PROFILER / "plan" / name: BASE | {"fsdp_profile.plan"} for name in FORMULAS},
    **{PROFILER / "plan" / name: PLAN for name in ("calibrate.py", "measured.py", "simulate.py")},
    # What runs inside a simulated rank's own process.
    **{
        PROFILER / "plan" / name: BASE | {"fsdp_profile.plan", "fsdp_profile.capture", "torch"}
        for name in ("simulated_rank.py", "storage_log.py", "fake_world.py", "loaders.py", "made_up.py", "no_cuda.py")
    },
    PROFILER / "report": BASE
    | {f"fsdp_profile.{name}" for name in ("machine", "report", "analysis", "plan")}
    | {"rich"},
    PROFILER / "export": BASE
    | FRAMES
    | {f"fsdp_profile.{floor}" for floor in ("export", "report", "analysis", "ingest")},
    PROFILER / "commands": BASE
    | {f"fsdp_profile.{floor}" for floor in FLOORS}
    | {"fsdp_dashboard", "fsdp_profile.machine", "rich", "msgspec", "torch"},
    PROFILER / "notebook.py": BASE
    | FRAMES
    | {f"fsdp_profile.{floor}" for floor in ("export", "report", "analysis", "ingest")}
    | {"pandas"},
    PROFILER / "pytest_plugin.py": {"pytest", "fsdp_profile.analysis", "fsdp_profile.errors", "fsdp_profile.humanize"},
    DASHBOARD / "charts": BASE
    | {"fsdp_profile.analysis", "fsdp_dashboard.charts", "plotly", "numpy", "pandas", "pyarrow"},
    DASHBOARD / "views": BASE - {"fsdp_profile.layout"} | {"streamlit", "fsdp_dashboard"},
    DASHBOARD / "app.py": BASE - {"fsdp_profile.layout"} | {"streamlit", "fsdp_dashboard"},
    DASHBOARD / "state.py": {"streamlit", "fsdp_dashboard.data"},
    DASHBOARD / "launch.py": {"fsdp_profile.errors", "fsdp_profile.layout"},
    DASHBOARD / "text.py": BASE | {"fsdp_dashboard", "fsdp_profile.analysis", "fsdp_profile.ingest"},
    DASHBOARD / "tables.py": BASE
    | {"fsdp_dashboard", "fsdp_profile.analysis", "fsdp_profile.ingest", "numpy", "pandas", "pyarrow"},
    DASHBOARD / "parts.py": BASE | {"streamlit", "fsdp_dashboard", "fsdp_profile.analysis"},
    **{
        DASHBOARD / name: BASE | {"streamlit", "fsdp_profile.analysis", "fsdp_profile.ingest", "numpy", "pyarrow",
                                  "fsdp_dashboard"}
        for name in ("data_answers.py", "data_collectives.py", "data_compare.py", "data_findings.py", "data_memory.py",
                     "data_ranks.py", "data_runs.py", "data_source.py", "data_traces.py", "data_units.py")
    },
    **{
        DASHBOARD / name: BASE
        | {"fsdp_dashboard", "fsdp_profile.analysis", "fsdp_profile.ingest", "numpy", "pandas", "pyarrow"}
        for name in ("tables_collectives.py", "tables_compare.py", "tables_memory.py", "tables_runs.py",
                     "tables_share.py",
                     "tables_source.py")
    },
    **{
        DASHBOARD / name: BASE | {"fsdp_dashboard", "fsdp_profile.analysis"}
        for name in ("text_answers.py", "text_compare.py", "text_findings.py", "text_memory.py", "text_runs.py",
                     "text_source.py")
    },
    DASHBOARD / "source_file.py": set(),
    DASHBOARD / "view_ledger.py": {"streamlit", "fsdp_dashboard"},
    DASHBOARD / "ledger_component.py": {"streamlit"},
    DASHBOARD / "data_share.py": {"streamlit", "fsdp_dashboard", "fsdp_profile.analysis", "fsdp_profile.export"},
    DASHBOARD / "data_whatif.py": BASE | {"fsdp_dashboard", "fsdp_profile.analysis", "fsdp_profile.plan"},
    DASHBOARD / "tables_whatif.py": BASE | {"fsdp_dashboard", "pyarrow"},
    DASHBOARD / "text_whatif.py": BASE | {"fsdp_dashboard", "fsdp_profile.plan"},
    DASHBOARD / "data.py": BASE
    | {"streamlit", "fsdp_profile.analysis", "fsdp_profile.plan", "fsdp_profile.export", "fsdp_profile.ingest", "numpy",
       "pandas", "pyarrow", "fsdp_dashboard"},
}  # fmt: skip


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            found |= {f"{base}.{alias.name}" for alias in node.names} if base == "fsdp_profile" else {base}
    return found


@pytest.mark.parametrize("floor", ALLOWED, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_floor_imports_only_what_stands_below_it(floor: Path) -> None:
    files = [floor] if floor.suffix else sorted(floor.rglob("*.py"))
    assert files, f"{floor} is gone: correct the table"
    for path in files:
        for name in imports_of(path):
            if name.split(".")[0] in sys.stdlib_module_names:
                continue
            prefixes = {name[:i] for i in range(len(name) + 1) if i == len(name) or name[i : i + 1] == "."}
            # Importing the package itself, for its version and place, allows none of what is in it.
            is_package = name in {"fsdp_profile", "fsdp_profile.__version__"}
            allowed = is_package or any(prefix in ALLOWED[floor] for prefix in prefixes)
            assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_every_file_of_the_planner_is_in_the_table() -> None:
    assert {path.name for path in (PROFILER / "plan").glob("*.py")} == {
        path.name for path in ALLOWED if path.parent == PROFILER / "plan"
    }


def test_the_source_roots_are_no_packages() -> None:
    assert not (ROOT / "profiler" / "__init__.py").exists()
    assert not (ROOT / "dashboard" / "__init__.py").exists()
