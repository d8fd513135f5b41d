"""The report as one HTML file that needs nothing else: no network, no font, no library.

[Note: A page that can do nothing]
The policy in its head allows no connection, no picture, no frame and no form; only the one script and the one style
sheet whose hashes it names run. Every name from a run is text (tags.esc; textContent in the script), so that a run
from anybody is safe to look at.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources

from fsdp_profile import __version__
from fsdp_profile.analysis.compare.peaks import Comparison, compare
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.schema import Phase
from fsdp_profile.present import compare as compare_words
from fsdp_profile.render.html.sections import RunPage, run_page, sections
from fsdp_profile.render.html.tags import bar, bullets, esc, heading, legend, paragraph
from fsdp_profile.render.html.values import sentence_paragraph, table_html

_PHASE_FILL = {
    Phase.FORWARD: "rgba(78,107,232,0.10)",
    Phase.BACKWARD: "rgba(230,145,38,0.12)",
    Phase.OPTIMIZER: "rgba(122,100,176,0.16)",
    Phase.EVALUATION: "rgba(70,160,90,0.12)",
    Phase.CHECKPOINT: "rgba(70,160,160,0.14)",
}


def html_report(runs: Sequence[Run]) -> str:
    """The page of one run, or of two with what changed between them.

    Raises:
        InputError: a table is damaged.
    """
    pages = [run_page(run, number=number) for number, run in enumerate(runs)]
    top_bytes = max((page.peak.allocated_bytes for page in pages if page.peak), default=1)
    names = _names(runs)
    body = [f"<header>{heading(1, ' and '.join(names))}{_links(names)}</header>"]
    if len(runs) > 1:
        body.append(f'<section id="compare">{_comparison(runs, names)}</section>')
    for number, page in enumerate(pages):
        title = heading(2, names[number]) if len(pages) > 1 else ""
        body.append(f'<section id="run-{number}">{title}{sections(page, number=number, top_bytes=top_bytes)}</section>')
    body.append(
        paragraph(f"Made by fsdp-profile {__version__}. This page needs no network and sends nothing.", css="note")
    )
    return _document(" and ".join(names), "".join(body), _meta(pages, top_bytes))


def _names(runs: Sequence[Run]) -> list[str]:
    """Where two runs have the same name, the second one gets a distinguishing name."""
    names = [run.name for run in runs]
    return [name if name not in names[:i] else f"{name} ({i + 1})" for i, name in enumerate(names)]


def _links(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = [f'<a href="#run-{number}">{esc(name)}</a>' for number, name in enumerate(names)]
    return f'<nav><a href="#compare">What changed</a>{"".join(items)}</nav>'


def _comparison(runs: Sequence[Run], names: Sequence[str]) -> str:
    try:
        found = compare(list(runs))
    except FsdpProfileError as e:
        return heading(2, "What changed") + paragraph(e, css="bad")
    return heading(2, "What changed") + comparison_html(found, names)


def comparison_html(found: Comparison, names: Sequence[str]) -> str:
    """What changed between runs, under names that tell them apart: the part of a page."""
    base = compare_words.baseline_of(found)
    top = max(c.peak.allocated_bytes for c in found.runs)
    bars = "".join(
        paragraph(f"{label}: {bytes_text(c.peak.allocated_bytes)}, {compare_words.change_text(c, base)}")
        + bar(c.peak.by_category, top_bytes=top, label=f"The peak of {label} by category")
        for label, c in zip(names, found.runs, strict=True)
    )
    differ = bullets(found.differences, css="bad")
    return (
        sentence_paragraph(compare_words.verdict(found), css="verdict")
        + (paragraph(f"{compare_words.DIFFER}:", css="bad") + differ if differ else "")
        + bars
        + legend({c for one in found.runs for c in one.peak.by_category})
        + table_html(compare_words.categories_table(found, names=names))
        + "".join(sentence_paragraph(one) for one in compare_words.changes(found))
    )


def _meta(pages: Sequence[RunPage], top_bytes: int) -> str:
    """What the script reads: numbers, and names as JSON strings that cannot end their element."""
    charts = [{**page.chart, "top_bytes": top_bytes} for page in pages if page.chart is not None]
    fills = {phase.value: fill for phase, fill in _PHASE_FILL.items()}
    colours = {category.value: category.colour for category in CATEGORIES}
    text = json.dumps({"charts": charts, "phases": fills, "colours": colours}, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _document(title: str, body: str, meta: str) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{esc(title)}</title><style>{style}</style></head>\n<body>{body}\n"
        f'<script type="application/json" id="meta">{meta}</script><script>{script}</script></body></html>\n'
    )


def _asset(name: str) -> str:
    return (resources.files("fsdp_profile.render.html") / "assets" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"
