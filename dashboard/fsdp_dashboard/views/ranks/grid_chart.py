"""One number of every rank as a heat map: a column per node, a row per local rank.

The scale of colours is cividis: it reads the same to every eye, and in grey.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fsdp_dashboard.charts.labels import Figure, base_layout, byte_scale, note, plot_text, short_text
from fsdp_dashboard.charts.palette import NEUTRAL
from fsdp_profile.analysis.ranks.grid import BYTES, Measure, RankGrid
from fsdp_profile.core.humanize import bytes_text, ns_text

SCALE: Final = [[0.0, "#00224e"], [0.25, "#35456c"], [0.5, "#7d7c78"], [0.75, "#c1b05d"], [1.0, "#fee838"]]
_ROW_PX: Final = 26
_FURNITURE_PX: Final = 90
_GAP_COLUMNS: Final = 32
"""More columns than this stand without gaps: on a phone those would be as wide as the cells."""
_MS, _S = 1e6, 1e9


def rank_grid_figure(grid: RankGrid, values: Mapping[int, int | None], measure: Measure) -> Figure:
    """The heat map; a rank without a value is a hole whose hover text says so."""
    known = [value for value in values.values() if value is not None]
    text_of: Callable[[int | None], str] = bytes_text if measure in BYTES else ns_text
    scale = byte_scale(max(known, default=0))
    in_time = ("s", _S) if max(known, default=0) >= _S else ("ms", _MS)
    unit, per_unit = (scale.name, scale.unit_bytes) if measure in BYTES else in_time
    low, high = min(known, default=0) / per_unit, max(known, default=0) / per_unit
    rows = range(grid.num_rows)
    cells = [[column[row] if row < len(column) else None for column in grid.ranks] for row in rows]
    gap = 1 if len(grid.columns) <= _GAP_COLUMNS else 0
    trace: Figure = {
        "type": "heatmap",
        "x": list(range(len(grid.columns))),
        "y": list(rows),
        "z": [[_in_unit(values, rank, per_unit) for rank in line] for line in cells],
        "customdata": [
            [_hover(grid, values, rank, place, text_of) for place, rank in enumerate(line)] for line in cells
        ],
        "hovertemplate": f"%{{customdata}}<br>{measure}<extra></extra>",
        "hoverongaps": True,
        "colorscale": SCALE,
        "zmin": low if high > low else 0,
        "zmax": high or 1,
        "xgap": gap,
        "ygap": 1,
        "name": str(measure),
        "showlegend": False,
        "colorbar": {"ticksuffix": f" {unit}", "thickness": 10, "nticks": 5, "outlinewidth": 0},
    }
    layout = base_layout(
        height=_ROW_PX * grid.num_rows + _FURNITURE_PX,
        hovermode="closest",
        margin={"l": 8, "r": 8, "t": 24, "b": 8},
        xaxis=_columns_axis(grid),
        yaxis={"title": {"text": "local rank" if grid.are_hosts else "rank in the column", "standoff": 4},
               "autorange": "reversed", "dtick": 1, "fixedrange": True, "showgrid": False, "zeroline": False},
        shapes=[],
        annotations=[],
    )  # fmt: skip
    if known.count(max(known, default=0)) == 1 and high > low:
        _mark_highest(layout, grid, values, text_of)
    return {"data": [trace], "layout": layout}


def extremes(values: Mapping[int, int | None], measure: Measure) -> str:
    """The picture in words: the lowest and the highest rank, and how many have no value."""
    text_of: Callable[[int | None], str] = bytes_text if measure in BYTES else ns_text
    known = {rank: value for rank, value in values.items() if value is not None}
    missing = len(values) - len(known)
    more = f"; not recorded on {missing:,} of {len(values):,} ranks" if missing else ""
    if not known:
        return f"{measure}: not recorded"
    low, high = (min(known, key=lambda r: (known[r], r)), max(known, key=lambda r: (known[r], -r)))
    if known[low] == known[high]:
        return f"{measure}: {text_of(known[high])} on every rank{more}"
    return f"{measure}: {text_of(known[high])} on rank {high}, the highest, {text_of(known[low])} on rank {low}{more}"


def _in_unit(values: Mapping[int, int | None], rank: int | None, per_unit: float) -> float | None:
    value = values.get(rank) if rank is not None else None
    return None if value is None else round(value / per_unit, 4)


def _hover(
    grid: RankGrid, values: Mapping[int, int | None], rank: int | None, place: int, text_of: Callable[[int | None], str]
) -> str:
    if rank is None:
        return "no rank here"
    where = f", {short_text(grid.columns[place])}" if grid.are_hosts else ""
    return f"<b>rank {rank}</b>{where}<br>{text_of(values.get(rank))}"


def _columns_axis(grid: RankGrid) -> Figure:
    every = max(1, -(-len(grid.columns) // 8))
    shown = list(range(0, len(grid.columns), every))
    axis: dict[str, Any] = {
        "title": {"text": "node" if grid.are_hosts else "ranks", "standoff": 8},
        "tickvals": shown,
        "ticktext": [short_text(grid.columns[i], max_chars=12) for i in shown],
        "showgrid": False,
        "zeroline": False,
    }
    return axis


def _mark_highest(
    layout: Figure, grid: RankGrid, values: Mapping[int, int | None], text_of: Callable[[int | None], str]
) -> None:
    known = {rank: value for rank, value in values.items() if value is not None}
    rank = max(known, key=lambda r: (known[r], -r))
    place = next(i for i, ranks in enumerate(grid.ranks) if rank in ranks)
    row = grid.ranks[place].index(rank)
    edge = {"x0": place - 0.5, "x1": place + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    layout["shapes"].append({"type": "rect", "line": {"width": 2, "color": "#d13b2b"}, **edge})
    side = "left" if place < len(grid.columns) / 2 else "right"
    text = plot_text(f"highest: rank {rank}, {text_of(known[rank])}")
    layout["annotations"].append(
        note(text, x=place, y=1, yref="paper", xanchor=side, yanchor="bottom", font={"size": 11, "color": NEUTRAL})
    )
