"""The device waterfall and the allocator's pools."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.present.device_waterfall import pools_table, waterfall_table
from fsdp_profile.render.terminal.parts import note
from fsdp_profile.render.terminal.values import grid_of, table_grid

MAX_POOLS: Final = 12


def waterfall_report(found: Waterfall | None, *, when: str = "at the peak") -> RenderableType | None:
    """From what tensors hold to what the device has in use; None where neither was recorded."""
    drawn = table_grid(waterfall_table(found, when=when)) if found is not None else None
    if found is None or drawn is None or not found.pools:
        return drawn
    pools = pools_table(found.pools[:MAX_POOLS])
    left_out = len(found.pools) - MAX_POOLS
    remark = pools.note + (f" The {MAX_POOLS} largest of {len(found.pools)} pools." if left_out > 0 else "")
    return Group(drawn, Text(), grid_of(pools), Text(), note(remark))
