"""Write docs/analysis-tables.md from core/answers.py."""

from pathlib import Path

from fsdp_profile.core.answers import ANSWERS

PAGE = Path(__file__).with_name("analysis-tables.md")
HEADER = """# Tables of the analysis

Functions of `fsdp_profile.analysis`, `Run.arrow` and `fsdp-profile export --table` return these tables, beside those of
[the run directory](run-directory.md). Written from `profiler/fsdp_profile/core/answers.py`; a test keeps them equal. A
type with `?` may be null, which means that the value was not recorded. Times are on the axis of the run.
"""


def page() -> str:
    """The whole page."""
    parts = [HEADER]
    for name, columns in ANSWERS.items():
        rows = [f"| {c.name} | {c.type}{'?' if c.nullable else ''} | {c.doc} |" for c in columns]
        parts.append("\n".join(["", f"## {name}", "", "| column | type | meaning |", "|---|---|---|", *rows, ""]))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
