"""Units of one rank: what each holds, and when it was gathered, used, resharded and reduced."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.collectives.exposure import exposed_ns
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import _last_ns
from fsdp_profile.core.schema import CollectiveKind, SpanKind
from fsdp_profile.ingest.tables import numbers, strings


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitSummary:
    """One unit over the complete training steps of one rank; times and counts are sums over them."""

    unit: int
    name: str
    kind: str
    numel: int
    sharded_bytes: int
    unsharded_bytes: int
    shard_size: int
    replicate_size: int
    num_gathers: int
    num_reshards: int | None
    """None where gathers but no reshards were recorded (imported traces)."""
    gathered_ns: int | None
    """Time for which the unsharded parameters existed; None with gathers but no recorded reshards (imported traces)."""
    all_gather_ns: int | None
    """Transport or device time of its all-gathers; None where no collectives were recorded."""
    reduce_scatter_ns: int | None
    """Transport or device time of its gradient reductions (reduce-scatter; all-reduce for DDP, HSDP and NO_SHARD); None
    where the rank's reductions are recorded and belong to no unit (DDP with unused parameters, or with a comm hook)."""
    exposed_ns: int | None
    """The part of both that was not hidden behind compute."""


def unit_summaries(run: Run, *, rank: int) -> list[UnitSummary]:
    """Every unit of a rank, in the order of construction."""
    units = run.table("units", rank=rank)
    spans = run.table("unit_spans", rank=rank)
    collectives = run.table("collectives", rank=rank)
    have_collectives = collectives.num_rows > 0
    exposed = exposed_ns(run, rank=rank)
    owner = numbers(collectives, "unit")
    has_reshards = bool((strings(spans, "kind") == SpanKind.RESHARD.value).any())
    kind = strings(collectives, "kind").astype(str)
    duration = numbers(collectives, "end_ns") - numbers(collectives, "start_ns")
    trained = numbers(collectives, "step") >= 0
    is_gather = kind == CollectiveKind.ALL_GATHER.value
    is_reduce = np.isin(kind, [CollectiveKind.REDUCE_SCATTER.value, CollectiveKind.ALL_REDUCE.value])
    belongs = (have_collectives and not (trained & is_reduce).any()) or bool((trained & is_reduce & (owner >= 0)).any())
    found = []
    names, kinds = strings(units, "name"), strings(units, "kind")
    for row, unit in enumerate(numbers(units, "unit")):
        mine = trained & (owner == unit)
        found.append(
            UnitSummary(
                unit=int(unit),
                name=str(names[row]),
                kind=str(kinds[row]),
                numel=_int(units, "numel", row),
                sharded_bytes=_int(units, "sharded_bytes", row),
                unsharded_bytes=_int(units, "unsharded_bytes", row),
                shard_size=_int(units, "shard_size", row),
                replicate_size=_int(units, "replicate_size", row),
                num_gathers=_count(spans, int(unit), SpanKind.ALL_GATHER),
                num_reshards=_count(spans, int(unit), SpanKind.RESHARD)
                if has_reshards or not _count(spans, int(unit), SpanKind.ALL_GATHER)
                else None,
                gathered_ns=_gathered_ns(run, rank, int(unit)),
                all_gather_ns=int(duration[mine & is_gather].sum()) if have_collectives else None,
                reduce_scatter_ns=int(duration[mine & is_reduce].sum()) if belongs else None,
                exposed_ns=int(exposed[mine].sum()) if belongs and exposed is not None else None,
            )
        )
    return found


def _int(table: pa.Table, column: str, row: int) -> int:
    return int(table.column(column)[row].as_py())


def _of(spans: pa.Table, unit: int, kind: SpanKind) -> np.ndarray[Any, np.dtype[np.bool_]]:
    is_kind = strings(spans, "kind").astype(str) == kind.value
    mine: np.ndarray[Any, np.dtype[np.bool_]] = (
        is_kind & (numbers(spans, "unit") == unit) & (numbers(spans, "step") >= 0)
    )
    return mine


def _count(spans: pa.Table, unit: int, kind: SpanKind) -> int:
    return int(_of(spans, unit, kind).sum())


def _gathered_ns(run: Run, rank: int, unit: int) -> int | None:
    spans = run.table("unit_spans", rank=rank)
    mine = _of(spans, unit, SpanKind.UNSHARDED)
    if not mine.any() and _count(spans, unit, SpanKind.ALL_GATHER):
        return None
    end = np.minimum(numbers(spans, "end_ns")[mine], _last_ns(run, rank))
    return int((end - numbers(spans, "start_ns")[mine]).sum())
