"""The memory of one rank: its peak and what it is made of, step by step, and the blocks that fill it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.device_waterfall import Waterfall
from fsdp_profile.analysis.memory.ledger import Conservation, Peak
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present import memory as present
from fsdp_profile.render.terminal.palette import FAILURE, QUIET, WARNING
from fsdp_profile.render.terminal.parts import heading, sections
from fsdp_profile.render.terminal.stack import StackedBar
from fsdp_profile.render.terminal.values import grid_of, sentence_text, table_grid
from fsdp_profile.render.terminal.waterfall import waterfall_report

MAX_BLOCKS: Final = 15


def composition(found: Peak | None, *, title: str = "Peak") -> RenderableType:
    """The peak: where it is, a bar of what it is made of, and the legend; `title` for another moment than the peak."""
    if found is None:
        return sentence_text(present.NO_PEAK, style=WARNING)
    title = f"{title} {bytes_text(found.allocated_bytes)} allocated on rank {found.rank}"
    bar = StackedBar(by_category=found.by_category, scale_bytes=found.allocated_bytes)
    legend = grid_of(present.categories_table(found.by_category))
    return Group(heading(title, present.where(found).text), bar, Text(), legend)


def memory_report(
    step_peaks: Sequence[Peak],
    *,
    peak: Peak | None,
    blocks: Any,
    unit_names: Mapping[int, str],
    law: Conservation | None,
    device: Waterfall | None = None,
    phases: Mapping[str, Peak] = MappingProxyType({}),
) -> RenderableType:
    """Everything about the memory of one rank.

    Args:
        step_peaks: the peak of every recorded training step, in order.
        peak: the highest of them.
        blocks: rows of `allocations` live at that peak, largest first; None when they could not be read.
        unit_names: unit number -> name.
        law: how well the ledger adds up; None when it could not be read.
        device: what the allocator and the device held at that peak; None where not recorded.
        phases: the peak of each phase.
    """
    has_blocks = blocks is not None and peak is not None
    return sections(
        [
            composition(peak),
            waterfall_report(device),
            _steps(step_peaks) if step_peaks else None,
            table_grid(present.phases_table(phases), drawn=_bars(list(phases.values()))) if phases else None,
            table_grid(present.blocks_table(blocks, peak, unit_names, max_rows=MAX_BLOCKS))
            if has_blocks and peak is not None
            else None,
            ledger(law) if law is not None and law.num_events else None,
        ]
    )


def ledger(law: Conservation) -> Text:
    """Whether the categories sum to the allocator's own total."""
    return sentence_text(present.conservation(law), style=FAILURE if present.has_errors(law) else QUIET)


def _steps(step_peaks: Sequence[Peak]) -> RenderableType | None:
    shown = present.highest(step_peaks)
    by_step = table_grid(present.steps_table(shown, num_steps=len(step_peaks)), drawn=_bars(shown))
    return None if by_step is None else Group(by_step, Text(), grid_of(present.step_categories_table(shown)))


def _bars(peaks: Sequence[Peak]) -> list[StackedBar]:
    scale = max(p.allocated_bytes for p in peaks)
    return [StackedBar(by_category=p.by_category, scale_bytes=scale) for p in peaks]
