"""The legend of a figure as a strip of HTML above it.

Plotly's own is drawn inside the figure: on a phone a dozen categories take half of the plot. The names in it
are the traces' own: categories, kinds of span, ranks, never a name from a run.
"""

import html
from typing import Final

from fsdp_dashboard.charts.labels import Figure

_STRIP: Final = "display:flex;flex-wrap:wrap;gap:2px 14px;font-size:0.75rem;line-height:1.25rem"
_SWATCH: Final = "display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px;background:"
_HATCH: Final = "repeating-linear-gradient(135deg,transparent 0 2px,{1} 2px 4px),{0}"


def legend_html(figure: Figure) -> str:
    """One row per group of entries (traces with `legend2` are the second); empty without entries."""
    groups: dict[str, dict[str, str]] = {}
    for trace in figure["data"]:
        if trace.get("showlegend", True):
            groups.setdefault(trace.get("legend", ""), {})[trace["name"]] = _colour(trace)
    return "".join(_strip(entries) for entries in groups.values())


def _strip(entries: dict[str, str]) -> str:
    items = (
        f'<span><span style="{_SWATCH}{html.escape(colour)}"></span>{html.escape(name)}</span>'
        for name, colour in entries.items()
    )
    return f'<div style="{_STRIP}">{"".join(items)}</div>'


def _colour(trace: Figure) -> str:
    """As CSS; bars with a pattern get a hatched swatch in `meta`'s colours."""
    marker = trace.get("marker", {})
    if "pattern" in marker:
        return _HATCH.format(*trace["meta"]["swatch"])
    candidates = (
        trace.get("fillcolor"),
        marker.get("color"),
        marker.get("line", {}).get("color"),
        trace.get("line", {}).get("color"),
    )
    return str(next(colour for colour in candidates if colour is not None))
