"""A run that ran out of memory opens with this: who asked for how much, what filled the rank, what would help."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.memory.postmortem import OtherRank, PostMortem, Remedy, Worth
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.render.terminal.memory import composition, unit_cell
from fsdp_profile.render.terminal.palette import FAILURE
from fsdp_profile.render.terminal.parts import Field, Grid, facts, heading, note, sections

MAX_OTHERS: Final = 16
MAX_REMEDIES: Final = 6


def postmortem_report(found: Sequence[PostMortem]) -> RenderableType | None:
    """The first failed allocation, and how many more there were; None where none failed."""
    if not found:
        return None
    first = found[0]
    where = f"{first.then.phase} of step {first.then.step}"
    unit = f", in {unit_text(first.then.unit_name)}" if first.then.unit_name is not None else ""
    title = Text(f"OUT OF MEMORY  rank {first.rank}, {where}{unit}", style=FAILURE)
    more = note(f"{len(found) - 1} more failed allocations: see --json") if len(found) > 1 else None
    return sections(
        [
            Group(title, facts(_facts(first))),
            composition(first.then, title="Live at that moment:"),
            _others(first.others) if first.others else None,
            _remedies(first.remedies) if first.remedies else None,
            more,
        ]
    )


def _facts(found: PostMortem) -> list[tuple[str, str]]:
    rows = [("asked", bytes_text(found.asked_bytes) if found.asked_bytes is not None else "not told by the error")]
    device = found.device
    if device is not None:
        rows += [
            ("largest free", f"{bytes_text(device.largest_free_bytes)} block in the allocator's pools"),
            ("device free", bytes_text(found.free_bytes)),
            ("allocated", f"{bytes_text(device.allocated_bytes)}, freed but held by a stream "
                          f"{bytes_text(device.pending_free_bytes)}"),
            ("reserved", f"{bytes_text(device.reserved_bytes)}, of it in no block "
                         f"{bytes_text(device.reserved_unused_bytes)}"),
            ("outside", f"{bytes_text(device.outside_bytes)} on the device is not PyTorch's allocator"),
        ]  # fmt: skip
    else:
        rows.append(("free", "not recorded: the CPU allocator does not tell"))
    return rows


def _others(others: Sequence[OtherRank]) -> RenderableType:
    shown = others[:MAX_OTHERS]
    grid = Grid(
        key=[Field(header="rank", cells=[str(o.rank) for o in shown])],
        groups=[
            [
                Field(header="allocated", cells=[bytes_text(o.allocated_bytes) for o in shown]),
                Field(header="step", cells=["" if o.step is None else str(o.step) for o in shown]),
                Field(header="phase", cells=[o.phase or "" for o in shown], justify="left"),
                Field(
                    header="unit",
                    cells=["" if o.allocated_bytes is None else unit_cell(o.unit_name) for o in shown],
                    justify="left",
                ),
            ]
        ],
    )
    remark = "" if len(shown) == len(others) else f"the first {len(shown)} of {len(others)}"
    return Group(heading("The other ranks at that moment", remark), grid)


def _remedies(remedies: Sequence[Remedy]) -> RenderableType:
    shown = remedies[:MAX_REMEDIES]
    worth = [
        f"{bytes_text(r.saves_bytes)}{' (estimate)' if r.worth is Worth.ESTIMATE else ''}"
        + (", enough" if r.is_enough else "")
        for r in shown
    ]
    rows = ((saves, Text(r.action)) for saves, r in zip(worth, shown, strict=True))
    return Group(heading("Remedies", "what each alone would save; worths do not add up"), facts(rows))
