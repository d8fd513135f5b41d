import re
from pathlib import Path

from analysis.findings.faults import healthy, rules
from builder import RunBuilder


def test_a_healthy_run_has_nothing_to_say() -> None:
    assert rules(healthy()) == []


def test_without_allocator_events_nothing_is_said() -> None:
    assert rules(RunBuilder().unit("a")) == []


def test_every_rule_has_a_paragraph_and_every_paragraph_a_rule() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs" / "findings.md"
    paragraphs = re.findall(r"^### ([a-z0-9-]+)$", docs.read_text(encoding="utf-8"), re.M)
    source = Path(__file__).resolve().parents[3] / "profiler" / "fsdp_profile" / "analysis" / "findings" / "rules"
    names = [n for p in sorted(source.glob("*.py")) for n in re.findall(r'rule="([a-z0-9-]+)"', p.read_text())]
    assert sorted(paragraphs) == sorted(names)
    assert len(set(names)) == len(names)
