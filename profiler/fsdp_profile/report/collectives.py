"""Collectives of one rank by kind, and how much of their time was exposed."""

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.analysis.collectives import CollectiveSummary
from fsdp_profile.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.report.palette import QUIET
from fsdp_profile.report.parts import Field, Grid, facts, heading


def collectives_report(found: CollectiveSummary | None, *, rank: int) -> RenderableType:
    """Calls, bytes and time by kind, and the exposed part of the whole."""
    title = heading("Collectives", f"rank {rank}, over the training steps")
    if found is None:
        return Group(title, Text("not recorded", style=QUIET))
    kinds = sorted(found.by_kind.items(), key=lambda item: -item[1].total_ns)
    grid = Grid(
        key=[Field(header="kind", cells=[kind for kind, _ in kinds], justify="left")],
        groups=[
            [
                Field(header="calls", cells=[f"{total.count:,}" for _, total in kinds]),
                Field(header="bytes", cells=[bytes_text(total.size_bytes) for _, total in kinds]),
                Field(header="time", cells=[ns_text(total.total_ns) for _, total in kinds]),
            ]
        ],
    )
    return Group(title, grid, Text(), facts([("in all", _whole(found)), ("exposed", _exposed(found))]))


def _whole(found: CollectiveSummary) -> str:
    return f"{ns_text(found.total_ns)}; calls that run at the same time count once"


def _exposed(found: CollectiveSummary) -> str:
    if found.exposed_ns is None:
        return "not recorded: no compute was recorded beside them"
    ratio = found.exposed_ns / found.total_ns if found.total_ns else 0.0
    return f"{ns_text(found.exposed_ns)} ({ratio_text(ratio)}) with no compute beside it"
