"""Bytes that the collectives of a rank move in each step, and the part that goes over the wire.

[Note: Bytes on the wire]
`size_bytes` is the whole array of a call (gather output, scatter input, reduced tensor), as recorded. `wire_bytes` is
what one rank sends when N ranks run it as a ring: S (N-1)/N for all-gather and reduce-scatter, 2 S (N-1)/N for
all-reduce (ZeRO, arXiv:1910.02054, section 7; the factors are those of nccl-tests). The transport may choose another
algorithm, so it is an estimate of the wire, and the exact figure to hold strategies against each other: DDP moves
2 P (N-1)/N a step, FSDP 3 P (N-1)/N less what is not gathered twice.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.waits import bus_factor
from fsdp_profile.analysis.run import Run
from fsdp_profile.ingest.tables import numbers, strings


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """The median complete step of one rank; of an even number of steps the lower one of the middle two."""

    size_bytes: int
    """Sum of the whole arrays."""
    wire_bytes: int
    """Bytes that the rank sends if every call runs as a ring: an estimate, see [Note: Bytes on the wire]."""
    num_steps: int
    """Number of complete steps that the median is taken over."""
    num_unknown: int = 0
    """Calls of these steps whose size or group was not recorded; they are in no sum."""


def traffic(run: Run, *, rank: int) -> pa.Table:
    """Collectives of the training steps, summed by step, kind and size of the group.

    Columns: step int32, kind string, group_size int32 (null: not recorded), count, num_unknown (of them, calls whose
    bytes were not recorded), size_bytes and wire_bytes int64 (of the others; null where there are none, or the group is
    not known). Sorted by step, kind, group_size.
    """
    table = run.table("collectives", rank=rank)
    table = table.filter(pa.array(numbers(table, "step") >= 0))
    kind = strings(table, "kind").astype(str)
    size = table.column("size_bytes").to_numpy(zero_copy_only=False).astype(np.float64)
    group = table.column("group_size").to_numpy(zero_copy_only=False).astype(np.float64)
    factor = np.array([np.nan if np.isnan(n) else bus_factor(k, int(n)) for k, n in zip(kind, group, strict=True)])
    rows = pa.table(
        {
            "step": table.column("step"),
            "kind": pa.array(kind, pa.string()),
            "group_size": table.column("group_size"),
            "size_bytes": pa.array(size, from_pandas=True),
            "wire_bytes": pa.array(size * factor, from_pandas=True),
            "is_unknown": np.isnan(size).astype(np.int64),
        }
    )
    summed = rows.group_by(["step", "kind", "group_size"]).aggregate(
        [([], "count_all"), ("is_unknown", "sum"), ("size_bytes", "sum"), ("wire_bytes", "sum")]
    )
    found = pa.table(
        {
            "step": summed.column("step"),
            "kind": summed.column("kind"),
            "group_size": summed.column("group_size"),
            "count": summed.column("count_all"),
            "num_unknown": summed.column("is_unknown_sum"),
            "size_bytes": _whole(summed.column("size_bytes_sum")),
            "wire_bytes": _whole(summed.column("wire_bytes_sum")),
        }
    )
    return found.sort_by([("step", "ascending"), ("kind", "ascending"), ("group_size", "ascending")])


def step_traffic(run: Run, *, rank: int) -> StepTraffic | None:
    """The bytes that one step moves, without calls of unknown size or group; None where no complete step has others."""
    steps = run.table("steps", rank=rank)
    complete = numbers(steps, "step")[steps.column("complete").to_numpy(zero_copy_only=False)]
    found = traffic(run, rank=rank)
    found = found.filter(pa.array(np.isin(numbers(found, "step"), complete[complete >= 0])))
    is_unknown = found.column("wire_bytes").combine_chunks().is_null().to_numpy(zero_copy_only=False)
    num_unknown = int(numbers(found, "num_unknown").sum())
    num_unknown += int((numbers(found, "count") - numbers(found, "num_unknown"))[is_unknown].sum())
    found = found.filter(pa.array(~is_unknown))
    if found.num_rows == 0:
        return None
    summed = found.group_by("step").aggregate([("size_bytes", "sum"), ("wire_bytes", "sum")]).sort_by("wire_bytes_sum")
    middle = (summed.num_rows - 1) // 2
    return StepTraffic(
        size_bytes=int(summed.column("size_bytes_sum")[middle].as_py()),
        wire_bytes=int(summed.column("wire_bytes_sum")[middle].as_py()),
        num_steps=summed.num_rows,
        num_unknown=num_unknown,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    values = column.to_numpy().astype(np.float64)
    is_known = ~np.isnan(values)
    return pa.array(np.rint(np.where(is_known, values, 0)).astype(np.int64), mask=~is_known)
