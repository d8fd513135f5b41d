"""Who may import whom: one table of floors and rooms, and no circles anywhere.

A row of ALLOWED is a package or a module; the longest row that a file's name begins with holds for it. `Floors and
rooms` that a row names may be imported, with all that is in them.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "profiler", ROOT / "dashboard")
FRAMES = {"numpy", "pyarrow", "msgspec"}
P, D = "fsdp_profile", "fsdp_dashboard"
CORE = f"{P}.core"
CAPTURE, INGEST, ANALYSIS, PRESENT = f"{P}.capture", f"{P}.ingest", f"{P}.analysis", f"{P}.present"
RENDER, EXPORT, PLAN, COMMANDS = f"{P}.render", f"{P}.export", f"{P}.plan", f"{P}.commands"

ALLOWED: dict[str, set[str]] = {
    CORE: {CORE},
    CAPTURE: {CORE, CAPTURE, "torch", "pynvml", "psutil"},
    INGEST: {CORE, INGEST, *FRAMES, "isal"},
    ANALYSIS: {CORE, INGEST, ANALYSIS, *FRAMES, "hta"},
    PRESENT: {CORE, f"{INGEST}.tables", ANALYSIS, PRESENT, f"{PLAN}.formulas", *FRAMES},
    RENDER: {CORE, ANALYSIS, INGEST, PRESENT, RENDER, *FRAMES},
    f"{RENDER}.terminal": {CORE, ANALYSIS, PRESENT, PLAN, f"{RENDER}.terminal", "rich"},
    EXPORT: {CORE, INGEST, ANALYSIS, PRESENT, RENDER, EXPORT, *FRAMES},
    f"{PLAN}.formulas": {CORE, f"{PLAN}.formulas"},
    PLAN: {CORE, INGEST, ANALYSIS, PLAN, *FRAMES},
    **{
        # What runs inside the process of a simulated rank.
        f"{PLAN}.simulate.{name}": {CORE, CAPTURE, PLAN, "torch"}
        for name in ("rank_process", "storage_log", "fake_process_group", "data_loaders", "placeholder_values",
                     "no_cuda")
    },
    COMMANDS: {P, D, "rich", "msgspec", "torch"},
    f"{P}.__main__": {COMMANDS},
    f"{P}.api": {P, *FRAMES, "pandas"},
    f"{P}.pytest_plugin": {CORE, ANALYSIS, "pytest"},
    f"{D}.launch": {CORE},
    f"{D}.state": {f"{D}.data", "streamlit"},
    f"{D}.charts": {CORE, ANALYSIS, f"{D}.charts", *FRAMES, "plotly", "pandas"},
    D: {CORE, INGEST, ANALYSIS, PRESENT, PLAN, EXPORT, D, *FRAMES, "streamlit", "plotly", "pandas"},
}  # fmt: skip

MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root in SOURCES
    for path in sorted(root.rglob("*.py"))
}


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names}
    return found


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("module", [name for name in MODULES if name not in {P, D}])
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    rows = [row for row in ALLOWED if is_below(module, row)]
    assert rows, f"{module} is in no row of the table"
    allowed = ALLOWED[max(rows, key=len)]
    for name in imports_of(MODULES[module]) - {P}:  # the package itself: for its version and its place
        if name.split(".")[0] not in sys.stdlib_module_names:
            assert any(is_below(name, package) for package in allowed), f"{module} imports {name}"


def test_every_row_of_the_table_is_of_something() -> None:
    for row in ALLOWED:
        assert any(is_below(name, row) for name in MODULES), f"{row} is gone: correct the table"


def _room(module: str) -> str:
    """The room a module stands in: the package inside a floor, or the module itself directly on the floor."""
    parts = module.split(".")
    return ".".join(parts[:3])


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    needs: dict[str, set[str]] = defaultdict(set)
    for module, path in MODULES.items():
        for name in imports_of(path) & set(MODULES) - {P}:
            is_face = MODULES[name].name == "__init__.py" and not imports_of(MODULES[name])
            if not is_face and _room(module) != _room(name):
                needs[_room(module)].add(_room(name))
    while leaves := {room for room in needs if not needs[room] & set(needs)}:
        for room in leaves:
            del needs[room]
    assert not needs, f"a circle is among: {sorted(needs)}"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    needs = {name: (imports_of(path) & set(MODULES)) - {name, P} for name, path in MODULES.items()}
    while leaves := {name for name in needs if not needs[name] & set(needs)}:
        for name in leaves:
            del needs[name]
    assert not needs, f"a circle is among: {sorted(needs)}"


def test_the_source_roots_are_no_packages() -> None:
    assert not (ROOT / "profiler" / "__init__.py").exists()
    assert not (ROOT / "dashboard" / "__init__.py").exists()
