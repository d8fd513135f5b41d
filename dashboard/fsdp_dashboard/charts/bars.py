"""What figures of bars over steps share."""

from typing import Final

from fsdp_dashboard.charts.labels import GRID, Figure, base_layout

INK: Final = "rgba(0,0,0,0.6)"
"""Of the hatching."""
_STEPS_PX: Final = 230


def hatched(colour: str) -> Figure:
    """Properties of a bar trace whose bars are hatched, its swatch in the legend too."""
    pattern = {"shape": "/", "fgcolor": INK, "fillmode": "overlay", "size": 6, "solidity": 0.3}
    return {"marker": {"color": colour, "pattern": pattern}, "meta": {"swatch": [colour, INK]}}


def step_bars_layout(num_steps: int, *, highest_ns: int) -> Figure:
    """The layout of stacked bars in ms, one per step."""
    return base_layout(
        height=_STEPS_PX,
        barmode="stack",
        # A single bar is not as wide as the page.
        bargap=0.3 if num_steps > 6 else 0.6 if num_steps > 1 else 0.88,
        hovermode="closest",
        xaxis={"type": "category", "title": {"text": "step", "standoff": 8}, "nticks": 16},
        yaxis={
            "range": [0, highest_ns / 1e6 * 1.1 or 1],
            "fixedrange": True,
            "ticksuffix": " ms",
            "nticks": 5,
            "gridcolor": GRID,
        },
    )
