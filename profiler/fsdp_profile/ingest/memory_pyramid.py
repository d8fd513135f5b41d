"""The ledger of a rank, downsampled level by level: table `memory_pyramid`.

[Note: Pyramid]
A bin of 64 events keeps the rows at its least, at its greatest and at its last total, each with all categories as
they were at that event; each level above keeps as much of four bins together. So every row is a real event (see
analysis/memory/downsampling.py), the greatest total of each bin is exact, and so is the total that lasts through bins
without events. The first and the last event are in every level.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.ingest.bins import rows_of_bins
from fsdp_profile.ingest.live_bytes import Ints, live_bytes
from fsdp_profile.ingest.tables import numbers

MIN_EVENTS: Final = 50_000
"""Fewer are read as they are."""
BIN_EVENTS: Final = 64
FACTOR: Final = 4
TOP_ROWS: Final = 1_200
"""The highest level is the first with so few rows."""


def pyramid_columns(samples: pa.Table, blocks: pa.Table) -> dict[str, Any]:
    """Columns of the table, from the rank's `memory_samples` and `allocations`."""
    levels = level_events(numbers(samples, "allocated_bytes"))
    event = np.concatenate(levels)
    live = np.empty((len(CATEGORIES), len(event)), np.int64)
    live[:, : len(levels[0])] = live_bytes(blocks, samples.num_rows).at(levels[0])
    done = len(levels[0])
    for above in levels[1:]:  # every row of a level is one of the level below
        live[:, done : done + len(above)] = live[:, np.searchsorted(levels[0], above)]
        done += len(above)
    taken = samples.select(["t_ns", "step", "allocated_bytes", "reserved_bytes", "active_bytes"]).take(pa.array(event))
    return {
        "level": np.repeat(np.arange(len(levels)), [len(level) for level in levels]),
        "event": event,
        **{name: taken.column(name) for name in taken.column_names},
        **{f"{category.lower()}_bytes": values for category, values in zip(CATEGORIES, live, strict=True)},
    }


def level_events(total: Ints) -> list[Ints]:
    """The events that each level keeps, in order, the finest level first."""
    levels: list[Ints] = []
    kept: Ints = np.arange(len(total))
    width = BIN_EVENTS
    while not levels or len(levels[-1]) > TOP_ROWS:
        kept = kept[rows_of_bins(total[kept], kept // width)]
        levels.append(kept)
        width *= FACTOR
    return levels
