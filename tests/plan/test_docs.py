"""The blocks of docs/planner.md for notebooks run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "planner.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(BLOCKS[number], f"block {number}", "exec"), {})
    printed = capsys.readouterr().out
    expected = ("fsdp 26000000000 1300000000 68250000000\n", "11509188 -> 19265388 {", "'PARAM': 266880")
    assert expected[number] in printed
