"""The device at one moment as one bar: what tensors hold, what the allocator keeps beside it, what is outside."""

from typing import Final

from fsdp_dashboard.charts.labels import ByteScale, Figure, base_layout, byte_axis, byte_scale, note, share_text
from fsdp_dashboard.charts.palette import NEUTRAL, WATERFALL_COLOURS
from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.core.humanize import bytes_text

_HEIGHT_PX: Final = 124
_TEXT_RATIO: Final = 0.13
"""A part of the axis at least this long has room for its size."""
_CAPACITY_RATIO: Final = 2.5
"""The device's size is drawn when it is at most this many times what is in use, else only told."""


def waterfall_figure(found: Waterfall) -> Figure:
    """The parts that were recorded, one after the other, against the device's size."""
    parts = waterfall_parts(found)
    used = sum(size for _, size in parts)
    total = found.device_total_bytes
    drawn_total = total if total is not None and total <= _CAPACITY_RATIO * used else None
    end = max(used, drawn_total or 0)
    scale = byte_scale(end)
    title = note(_title(found), x=0, y=-0.21, xref="x", yref="y", xanchor="left", yanchor="bottom", yshift=1)
    layout = base_layout(
        height=_HEIGHT_PX,
        barmode="stack",
        bargap=0.58,
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 8, "b": 8},  # room for half of the first and the last tick
        xaxis=byte_axis(scale, end=max(float(scale.of(end)) * 1.03, 1.0)),
        yaxis={"range": [0.4, -0.75], "visible": False, "fixedrange": True},
        annotations=[title],
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


def waterfall_parts(found: Waterfall) -> list[tuple[str, int]]:
    """(name, bytes) of the parts to draw, from the left; they add up to the highest level that was recorded."""
    if found.reserved_bytes is None:
        inside: list[tuple[str, int | None]] = []
        whole, mine = found.device_used_bytes, found.process_used_bytes
        name = "device used"
    else:
        inside = [
            ("allocated", found.allocated_bytes),
            ("held by a stream", found.pending_free_bytes),
            ("cached", found.reserved_unused_bytes),
        ]
        whole, mine = found.outside_bytes, found.outside_this_process_bytes
        name = "outside"
    others = found.other_processes_bytes
    # A sample of NVML and an event are not at one moment: a split that does not add up is not drawn.
    if mine is not None and others is not None and min(mine, others) >= 0:
        outside = [("outside: this process", mine), ("outside: other processes", others)]
    else:
        outside = [(name, whole if whole is not None and whole > 0 else 0)]
    return [(part, size) for part, size in [*inside, *outside] if size]


def _title(found: Waterfall) -> str:
    size = "" if found.device_total_bytes is None else f" of {bytes_text(found.device_total_bytes)}"
    if found.device_used_bytes is not None:
        return f"<b>device used {bytes_text(found.device_used_bytes)}</b>{size}"
    return f"<b>reserved {bytes_text(found.reserved_bytes)}</b>{size}, device used not recorded"
