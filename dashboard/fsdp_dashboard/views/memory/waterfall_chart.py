"""The device at one moment as one bar: what tensors hold, what the allocator keeps beside it, what is outside."""

from typing import Final

from fsdp_dashboard.charts.labels import ByteScale, Figure, base_layout, byte_axis, byte_scale, note, share_text
from fsdp_dashboard.charts.palette import NEUTRAL, WATERFALL_COLOURS
from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present.device_waterfall import title, waterfall_parts

_HEIGHT_PX: Final = 124
_TEXT_RATIO: Final = 0.13
"""A part of the axis at least this long has room for its size."""
_CAPACITY_RATIO: Final = 2.5
"""The device's size is drawn when it is at most this many times what is in use, else only named in text."""


def waterfall_figure(found: Waterfall) -> Figure:
    """The parts that were recorded, one after the other, against the device's size."""
    parts = waterfall_parts(found)
    used = sum(size for _, size in parts)
    total = found.device_total_bytes
    drawn_total = total if total is not None and total <= _CAPACITY_RATIO * used else None
    end = max(used, drawn_total or 0)
    scale = byte_scale(end)
    heading = note(_title(found), x=0, y=-0.21, xref="x", yref="y", xanchor="left", yanchor="bottom", yshift=1)
    layout = base_layout(
        height=_HEIGHT_PX,
        barmode="stack",
        bargap=0.58,
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 8, "b": 8},  # room for half of the first and the last tick
        xaxis=byte_axis(scale, end=max(float(scale.of(end)) * 1.03, 1.0)),
        yaxis={"range": [0.4, -0.75], "visible": False, "fixedrange": True},
        annotations=[heading],
        shapes=[] if drawn_total is None else [_size_line(float(scale.of(drawn_total)))],
    )
    return {"data": [_bar(name, size, used=used, end=end, scale=scale) for name, size in parts], "layout": layout}


def _bar(name: str, size_bytes: int, *, used: int, end: int, scale: ByteScale) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "x": [float(scale.of(size_bytes))],
        "y": [0],
        "name": name,
        "marker": {"color": WATERFALL_COLOURS[name], "line": {"width": 0}},
        "text": [bytes_text(size_bytes) if size_bytes >= _TEXT_RATIO * end else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": f"<b>{name}</b> {bytes_text(size_bytes)}<br>{share_text(size_bytes, used)} of "
        f"{bytes_text(used)}<extra></extra>",
    }


def _size_line(x: float) -> Figure:
    dashes = {"width": 2, "dash": "dash", "color": NEUTRAL}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": dashes}


def _title(found: Waterfall) -> str:
    level, beside = title(found)
    return f"<b>{level}</b>{beside}"
