"""The verdicts of a check as Markdown, for a pull request."""

from fsdp_profile.analysis.check.result import CheckReport, Verdict
from fsdp_profile.present.check import checks_table, summary
from fsdp_profile.render.markdown.tags import markdown_text
from fsdp_profile.render.markdown.values import sentence_markdown, table_markdown


def check_markdown(found: CheckReport) -> str:
    """A table of the checks that failed and, folded away, of those that hold: for a comment on a pull request."""
    mark = ":x:" if found.failed else ":white_check_mark:"
    text = [
        f"### {mark} fsdp-profile check: {markdown_text(found.run)}",
        "",
        f"{sentence_markdown(summary(found))}.",
        "",
    ]
    text += [f"> not the same: {markdown_text(line)}" for line in found.differences]
    text += [""] if found.differences else []
    text += table_markdown(checks_table(found.failed), max_rows=None)
    held = [check for check in found.checks if check.verdict is Verdict.OK]
    if held:
        text += [f"<details><summary>{len(held)} that hold</summary>", ""]
        text += [*table_markdown(checks_table(held), max_rows=None), "</details>", ""]
    return "\n".join(text)
