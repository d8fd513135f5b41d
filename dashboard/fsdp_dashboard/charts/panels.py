"""Panels one below the other, for several runs: the same bytes on every y axis, one legend."""

from typing import Any, Final

from fsdp_dashboard.charts.labels import (
    ByteScale,
    Figure,
    base_layout,
    byte_axis,
    note,
    plot_text,
    short_text,
)
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_profile.core.humanize import bytes_text

HEADROOM: Final = 1.3
"""The axis ends this far above the highest peak: room for the names of phases and the peak's label."""
_PANEL_PX: Final = 310
_SINGLE_PX: Final = 400
_FURNITURE_PX: Final = 60  # axis title below
_GAP_RATIO: Final = 0.2  # of a panel's share, for its title and the ticks of the one above
TELLING_RATIO: Final = 0.85
"""A panel whose own peak is nearer to the highest than this needs no word on the highest."""
_MAX_TITLE_CHARS: Final = 34


def axes_of(number: int) -> tuple[str, str]:
    """Names of the axes of a panel, as traces refer to them."""
    suffix = "" if number == 0 else str(number + 1)
    return f"x{suffix}", f"y{suffix}"


def axis_key(axis: str) -> str:
    """The key of an axis in the layout."""
    return f"{axis[0]}axis{axis[1:]}"


def panels_layout(num_panels: int, *, scale: ByteScale, highest_bytes: int, x_title: str) -> Figure:
    """The layout of the panels; only the last one shows the title of its x axis."""
    height = (_SINGLE_PX if num_panels == 1 else _PANEL_PX * num_panels) + _FURNITURE_PX
    layout = base_layout(height=height, hovermode="x unified", shapes=[], annotations=[])
    share = 1 / num_panels
    gap = share * _GAP_RATIO if num_panels > 1 else 0.0
    for number in range(num_panels):
        x, y = axes_of(number)
        is_last = number == num_panels - 1
        top = 1 - number * share - gap / 2
        axis: dict[str, Any] = {"anchor": y, "showgrid": False, "zeroline": False}
        axis["title"] = {"text": x_title if is_last else "", "standoff": 4}
        layout[axis_key(x)] = axis
        domain = [max(top - share + gap, 0.0), top]
        end = max(float(scale.of(highest_bytes)) * HEADROOM, 1.0)
        layout[axis_key(y)] = byte_axis(scale, end=end, anchor=x, domain=domain)
    return layout


def panel_title(name: str, axes: tuple[str, str], more: str = "") -> Figure:
    """The run's name above its panel."""
    text = f"<b>{short_text(name, max_chars=_MAX_TITLE_CHARS)}</b>{plot_text(more)}"
    place = {"x": 0, "y": 1, "xref": f"{axes[0]} domain", "yref": f"{axes[1]} domain"}
    return note(text, **place, xanchor="left", yanchor="bottom", yshift=2)


def reference(
    own_bytes: int, highest_bytes: int, *, scale: ByteScale, axes: tuple[str, str]
) -> tuple[Figure, list[Figure]]:
    """The highest peak of all panels as (line, label); no label in the panel that it belongs to."""
    y = float(scale.of(highest_bytes))
    place = {"xref": f"{axes[0]} domain", "yref": axes[1]}
    dashes = {"width": 1, "dash": "dash", "color": NEUTRAL}
    line = {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": dashes, **place}
    if own_bytes > TELLING_RATIO * highest_bytes:
        return line, []
    text = f"highest of all: {bytes_text(highest_bytes)}"
    return line, [note(text, x=0, y=y, xanchor="left", yanchor="top", font={"size": 11}, **place)]
