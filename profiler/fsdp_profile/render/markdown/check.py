"""The verdicts of a check as Markdown, for a pull request."""

from collections.abc import Callable

from fsdp_profile.analysis.check.result import Check, CheckReport, Verdict
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.present.check import VERDICT_WORDS, summary
from fsdp_profile.render.markdown.tags import markdown_text


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


def _row(check: Check) -> str:
    cells = [
        markdown_text(check.name),
        VERDICT_WORDS[check.verdict],
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
