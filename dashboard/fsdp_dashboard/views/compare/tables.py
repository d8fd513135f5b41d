"""Tables of the Compare page, in the runs' order."""

from collections.abc import Sequence

import pyarrow as pa

from fsdp_dashboard.charts.labels import MINUS
from fsdp_profile.analysis.compare.peaks import ComparedRun
from fsdp_profile.analysis.compare.side_by_side import Row
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text, unit_text


def rows_table(rows: Sequence[Row], names: Sequence[str], *, what: str, base: int, other: int) -> pa.Table:
    """Phases or units: the baseline's bytes, the other run's, and the change."""
    pairs = [(row.sizes_bytes[base], row.sizes_bytes[other]) for row in rows]
    return pa.table(
        {
            what: [unit_text(row.name) for row in rows],
            names[base]: [None if size is None else bytes_text(size) for size, _ in pairs],
            names[other]: [None if size is None else bytes_text(size) for _, size in pairs],
            "change": [None if a is None or b is None else signed(b - a) for a, b in pairs],
        }
    )


def cost_table(runs: Sequence[ComparedRun], names: Sequence[str]) -> pa.Table:
    """What a step costs, one column a run."""
    costs = [c.cost for c in runs]
    columns = {
        name: [
            ns_text(cost.step_ns),
            bytes_text(cost.size_bytes),
            bytes_text(cost.wire_bytes),
            ns_text(cost.communication_ns),
            ns_text(cost.exposed_ns),
            ratio_text(cost.exposed_ratio),
        ]
        for name, cost in zip(names, costs, strict=True)
    }
    facts = ["step", "collectives move", "a rank sends (estimate)", "collectives take", "of it exposed", "of the step"]
    return pa.table({"median step": facts, **columns})


def losses_table(mine: ComparedRun) -> pa.Table:
    """The loss of every step and the largest difference of any rank and micro-step."""
    steps = mine.losses.steps if mine.losses is not None else ()
    return pa.table(
        {
            "step": pa.array([s.step for s in steps], pa.int64()),
            "baseline's loss": [f"{s.loss:.6f}" for s in steps],
            "largest difference": [f"{s.difference:.1e}" if s.difference else "0" for s in steps],
        }
    )


def signed(delta_bytes: int) -> str:
    """Bytes with their sign; '=' of nothing."""
    if delta_bytes == 0:
        return "="
    return f"{'+' if delta_bytes > 0 else MINUS}{bytes_text(abs(delta_bytes))}"
