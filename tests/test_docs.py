"""Documents say what is: commands parse, targets and files exist, tables match, docstring examples run."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import fsdp_profile
from fsdp_profile.commands import build_parser, main, verbs
from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.core.schema import TABLES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT, ROOT / "sample_runs", ROOT / "examples", ROOT / "docs")
PAGES = [page for folder in FOLDERS for page in sorted(folder.glob("*.md"))]


def commands_in(page: Path) -> list[str]:
    blocks = re.findall(r"```(?:bash|console|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_given(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line in commands_in(page):
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert set(words[1:]) <= targets, line
        if words[:1] == ["fsdp-profile"]:
            args = build_parser().parse_args(words[1:])
            for path in [getattr(args, "script", None), getattr(args, "run", None), *getattr(args, "runs", [])]:
                if isinstance(path, str | Path) and not str(path).startswith("runs/"):
                    assert (ROOT / path).exists(), line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tables_page_is_the_schema() -> None:
    text = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\| (\w+) \| (\w+\??) \|", text, re.M) if row != ("column", "type")]
    schema = [(c.name, c.type + ("?" if c.nullable else "")) for columns in TABLES.values() for c in columns]
    assert rows == schema
    assert re.findall(r"^## (\w+)$", text, re.M) == list(TABLES)


def test_the_ledger_page_lists_every_category() -> None:
    text = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([A-Z_]+) \|", text, re.M) == [str(c) for c in CATEGORIES]


def test_the_readme_knows_every_verb() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for verb in verbs():
        assert re.search(rf"`(fsdp-profile )?{verb}`", text), verb


MODULES = [
    m.name
    for m in pkgutil.walk_packages(fsdp_profile.__path__, "fsdp_profile.")
    if "inject" not in m.name and not m.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_the_readme_shows_what_compare_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.search(r"```text\n(.*?)\.\.\.\n```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert block is not None
    monkeypatch.setenv("COLUMNS", "100")
    samples = [str(ROOT / "sample_runs" / name) for name in ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks")]
    assert main(["compare", *samples]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = block.group(1).splitlines()
    assert printed[: len(shown)] == shown
