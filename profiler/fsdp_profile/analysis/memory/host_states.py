"""Parameters, gradients and optimizer state on the host under CPU offload, which no device ledger includes."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStates:
    """What a rank's models and optimizers held on the host at one moment."""

    rank: int
    step: int
    """The step that had just ended."""
    t_ns: int
    by_category: dict[Category, int]
    """Bytes by category, pinned and not."""
    pinned_bytes: int

    @property
    def size_bytes(self) -> int:
        """All bytes on the host."""
        return sum(self.by_category.values())


def host_states(run: Run, *, rank: int) -> HostStates | None:
    """The moment with most bytes on the host; None where none were held there, or the host is the device (CPU).

    Raises:
        InputError: no such rank, or its files are damaged.
    """
    moments: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in run.table("host_states", rank=rank).to_pylist():
        moments[row["t_ns"]].append(row)
    found = [_moment(rank, rows) for rows in moments.values()]
    return max(found, key=lambda states: (states.size_bytes, -states.t_ns), default=None)


def _moment(rank: int, rows: list[dict[str, Any]]) -> HostStates:
    by_category: dict[Category, int] = defaultdict(int)
    for row in rows:
        by_category[Category(row["category"])] += row["size_bytes"]
    return HostStates(
        rank=rank,
        step=rows[0]["step"],
        t_ns=rows[0]["t_ns"],
        by_category=dict(by_category),
        pinned_bytes=sum(row["size_bytes"] for row in rows if row["is_pinned"]),
    )
