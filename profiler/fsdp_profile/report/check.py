"""The answer of a check as text for the terminal, as Markdown for a pull request, as JUnit for a test report."""

import re
from collections.abc import Callable
from typing import Final
from xml.etree import ElementTree

from rich.console import RenderableType
from rich.text import Text

from fsdp_profile.analysis.check_result import Check, CheckReport, Verdict
from fsdp_profile.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.report.palette import FAILURE, QUIET, WARNING
from fsdp_profile.report.parts import facts, heading, lines, note, plain, sections

_WORDS = {Verdict.OK: "ok", Verdict.BREACH: "BREACH", Verdict.NOT_RECORDED: "NOT RECORDED"}
_STYLES = {Verdict.OK: QUIET, Verdict.BREACH: FAILURE, Verdict.NOT_RECORDED: WARNING}
MAX_FAILED: Final = 20

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#!|~])")


def check_report(found: CheckReport) -> RenderableType:
    """What failed, then the limits that held; of a baseline that held everywhere one line."""
    shown = [*found.failed[:MAX_FAILED], *(c for c in found.checks if c.verdict is Verdict.OK and _is_asked_for(c))]
    rows = [(_WORDS[c.verdict], Text(plain(c.message), style=_STYLES[c.verdict])) for c in shown]
    parts: list[RenderableType | None] = [heading(found.run, summary(found))]
    if found.differences:
        parts.append(lines([f"not the same: {line}" for line in found.differences], style=WARNING))
    parts.append(facts(rows))
    more = len(found.failed) - MAX_FAILED
    parts.append(note(f"and {more} more that failed: see --json") if more > 0 else None)
    held = sum(c.verdict is Verdict.OK and not _is_asked_for(c) for c in found.checks)
    parts.append(note(f"and {held} more that hold: categories, units, communicators") if held else None)
    return sections(parts)


def _is_asked_for(check: Check) -> bool:
    """Limits that were given, and the peak; the rest of a baseline is told where it fails."""
    return "/" not in check.name or check.name == "baseline/peak"


def summary(found: CheckReport) -> str:
    """One line: how many failed, against what."""
    against = f" against {', '.join(found.baselines)}" if found.baselines else ""
    failed = len(found.failed)
    if not failed:
        return f"all {len(found.checks)} checks hold{against}"
    return f"{failed} of {len(found.checks)} checks failed{against}"


def check_markdown(found: CheckReport) -> str:
    """For a job's summary or a comment on a pull request: a table of what failed and of the limits."""
    mark = ":x:" if found.failed else ":white_check_mark:"
    text = [f"### {mark} fsdp-profile check: {markdown_text(found.run)}", "", f"{markdown_text(summary(found))}.", ""]
    text += [f"> not the same: {markdown_text(line)}" for line in found.differences]
    text += [""] if found.differences else []
    text += ["| check | verdict | measured | baseline | limit | |", "|---|---|---:|---:|---:|---|"]
    text += [_row(check) for check in found.failed]
    held = [check for check in found.checks if check.verdict is Verdict.OK]
    if held:
        text += ["", f"<details><summary>{len(held)} that hold</summary>", ""]
        text += ["| check | verdict | measured | baseline | limit | |", "|---|---|---:|---:|---:|---|"]
        text += [*map(_row, held), "", "</details>"]
    return "\n".join([*text, ""])


def markdown_text(text: str) -> str:
    r"""A name from a run as text in GitHub's Markdown: no mark-up, no tag, nobody mentioned.

    >>> markdown_text("<b>@me|[x](y)")
    '&lt;b&gt;&#64;me\\|\\[x\\]\\(y\\)'
    """
    escaped = _MARKDOWN.sub(r"\\\1", plain(text).replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;").replace("://", ":&#47;/")


def check_junit(found: CheckReport) -> str:
    """One test case per check."""
    failures = sum(check.verdict is Verdict.BREACH for check in found.checks)
    errors = sum(check.verdict is Verdict.NOT_RECORDED for check in found.checks)
    counts = {"tests": str(len(found.checks)), "failures": str(failures), "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": "fsdp-profile check", **counts})
    for check in found.checks:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"fsdp-profile.{plain(found.run)}", "name": plain(check.name)}
        )
        if check.verdict is not Verdict.OK:
            tag = "failure" if check.verdict is Verdict.BREACH else "error"
            ElementTree.SubElement(case, tag, {"message": plain(check.message)})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _row(check: Check) -> str:
    cells = [
        markdown_text(check.name),
        _WORDS[check.verdict],
        _value(check.measured, check.unit),
        _value(check.baseline, check.unit) if check.baseline is not None else "",
        _value(check.limit, check.unit),
        markdown_text(check.message),
    ]
    return f"| {' | '.join(cells)} |"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "not recorded"
    texts: dict[str, Callable[[float], str]] = {
        "bytes": lambda size: bytes_text(int(size)),
        "ns": lambda ns: ns_text(int(ns)),
        "ratio": ratio_text,
        "count": lambda count: f"{count:g}",
    }
    return texts[unit](value)
