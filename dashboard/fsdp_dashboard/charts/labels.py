"""Names and numbers as a figure shows them.

A name that comes from a run is text: plotly reads a little HTML and TeX in labels, so it is escaped here. It
goes into customdata, labels or annotations, never into a hovertemplate, which has a language of its own.
"""

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsdp_profile.core.humanize import ratio_text, unit_text

Figure = dict[str, Any]
MINUS = "\N{MINUS SIGN}"
MAX_NAME_CHARS = 28
"""A longer name would push the plot off a phone's screen."""

GRID = "rgba(128,138,148,0.25)"


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteScale:
    """The binary unit of one axis."""

    name: str
    unit_bytes: int

    def of(self, size_bytes: Any) -> Any:
        """Bytes (a number or an array) in this unit."""
        return np.asarray(size_bytes) / self.unit_bytes if np.ndim(size_bytes) else size_bytes / self.unit_bytes


def byte_scale(max_bytes: int) -> ByteScale:
    """The largest binary unit that the largest value reaches.

    >>> byte_scale(3 << 20).name, byte_scale(12).name
    ('MiB', 'B')
    """
    for name, unit_bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if max_bytes >= unit_bytes:
            return ByteScale(name=name, unit_bytes=unit_bytes)
    return ByteScale(name="B", unit_bytes=1)


def plot_text(name: str) -> str:
    """A name as text for plotly: no tags, no TeX, no control characters.

    >>> plot_text("<b>$x$</b>")
    '&lt;b&gt;&#36;x&#36;&lt;/b&gt;'
    """
    printable = "".join(c if c.isprintable() else " " for c in name)
    return html.escape(printable, quote=False).replace("$", "&#36;")


def short_text(name: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """`plot_text` of a name cut on the left: the end of a module path tells the most.

    >>> short_text("model.decoder.layers.11.attention", max_chars=12)
    '…1.attention'
    """
    return plot_text(name if len(name) <= max_chars else "…" + name[1 - max_chars :])


def short_unit(name: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """`plot_text` of a module path: leading words become initials, numbers stay, until it fits.

    >>> short_unit("model.decoder.blocks.11.attention", max_chars=18), short_unit("")
    ('m.d.b.11.attention', '(root)')
    """
    text = unit_text(name)
    words = text.split(".")
    for i, word in enumerate(words[:-1]):
        if len(".".join(words)) > max_chars and not word.isdecimal():
            words[i] = word[:1]
    text = ".".join(words)
    return plot_text(text if len(text) <= max_chars else text[: max_chars - 1] + "…")


def unit_label(name: str | None) -> str:
    """The active unit, for a hover text."""
    return "no active unit" if name is None else f"active unit {short_unit(name, max_chars=2 * MAX_NAME_CHARS)}"


def base_layout(*, height: int, **more: Any) -> Figure:
    """What every figure shares. Colours of text and paper are left to the page's theme."""
    layout: Figure = {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,  # see legend.py; an export turns it on
        "legend": {"orientation": "h", "traceorder": "normal", "y": 1.02, "yanchor": "bottom"},
        "font": {"size": 12},
        "hoverlabel": {"font": {"size": 12}, "align": "left"},
        "uirevision": "keep",
    }
    layout.update(more)
    return layout


def note(text: str, **more: Any) -> Figure:
    """An annotation without an arrow; `text` is plotly text already."""
    return {"text": text, "showarrow": False, "font": {"size": 12}, **more}


def byte_axis(scale: ByteScale, *, end: float, **more: Any) -> Figure:
    """A fixed axis of bytes from 0 to `end` (in the unit of the scale)."""
    axis: Figure = {
        "range": [0, end],
        "fixedrange": True,
        "ticksuffix": f" {scale.name}",
        "nticks": 6,
        "gridcolor": GRID,
        "zeroline": False,
    }
    return {**axis, **more}


def whole_ticks(num_values: int) -> Figure:
    """Ticks of an axis that counts from 0: whole numbers, about eight of them."""
    return {"tick0": 0, "dtick": max(1, -(-num_values // 8)), "tickformat": "d"}


def share_text(size_bytes: int, total_bytes: int) -> str:
    """A part as a percentage of its whole; 'not recorded' when the whole is nothing."""
    return ratio_text(size_bytes / total_bytes if total_bytes else None)
