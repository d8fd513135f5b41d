"""The `units` and `unit_spans` tables of a rank, from the descriptions and spans that its hooks recorded."""

from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core.capture_log import REGIONS
from fsdp_profile.core.schema import NOT_FREED, TABLES, SpanKind
from fsdp_profile.core.units import is_bucket
from fsdp_profile.ingest.rank.attribution import Clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog

_Span = tuple[int, str, int, int, int, bool, str]
"""unit, kind, start_ns, end_ns, size_bytes, prefetched, prefetch"""


def unit_columns(log: CaptureLog) -> dict[str, Any]:
    """Columns of the `units` table."""
    rows = [log.units[unit] for unit in sorted(log.units)]
    described = [column.name for column in TABLES["units"] if column.name not in ("unit", "trainable_numel")]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in described}
    columns["name"] = _distinct([row["name"] for row in rows])
    if any(row.get("trainable_numel") is not None for row in rows):
        columns["trainable_numel"] = [row.get("trainable_numel") for row in rows]
    return {"unit": sorted(log.units), **columns}


def _distinct(names: list[str]) -> list[str]:
    """Names of units, numbered where a module has several groups: 'layers.0', 'layers.0#2'."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def unit_span_columns(log: CaptureLog, clock: Clock, collectives: pa.Table | None) -> dict[str, Any]:
    """Columns of the `unit_spans` table; spans of DDP's buckets come from the `collectives` table."""
    vocabulary = log.strings.texts
    spans = log.spans
    kind = np.array([vocabulary[code] for code in spans["kind"]], object)
    keep = ~np.isin(kind.astype(str), REGIONS)
    rows = [
        (int(u), str(k), int(a), int(b), int(size), bool(early), vocabulary[word])
        for u, k, a, b, size, early, word in zip(
            spans["unit"][keep], kind[keep], spans["start_ns"][keep], spans["end_ns"][keep],
            spans["size_bytes"][keep], spans["prefetched"][keep], spans["prefetch"][keep], strict=True,
        )
    ]  # fmt: skip
    rows += _unsharded_spans(rows)
    rows += _bucket_spans(log, collectives)
    rows.sort(key=lambda row: row[2])
    start = np.array([row[2] for row in rows], np.int64)
    return {
        "unit": [row[0] for row in rows],
        "kind": [row[1] for row in rows],
        "step": clock.steps(start),
        "phase": list(clock.phase_names(clock.phase_index(start))),
        "start_ns": start,
        "end_ns": [row[3] for row in rows],
        "size_bytes": [row[4] for row in rows],
        "prefetched": [row[5] for row in rows],
        "prefetch": [row[6] for row in rows],
    }


def _unsharded_spans(rows: list[_Span]) -> list[_Span]:
    """From a unit's all-gather to its next reshard; a gather of what is gathered already adds nothing."""
    found: list[_Span] = []
    open_since: dict[int, _Span] = {}
    marks = (SpanKind.ALL_GATHER.value, SpanKind.RESHARD.value)
    for row in sorted((r for r in rows if r[1] in marks), key=lambda r: r[2]):
        if row[1] == SpanKind.ALL_GATHER.value:
            open_since.setdefault(row[0], row)
        elif (since := open_since.pop(row[0], None)) is not None:
            found.append((row[0], SpanKind.UNSHARDED.value, since[2], row[3], row[4], *since[5:]))
    for unit, since in open_since.items():
        found.append((unit, SpanKind.UNSHARDED.value, since[2], NOT_FREED, since[4], *since[5:]))
    return found


def _bucket_spans(log: CaptureLog, collectives: pa.Table | None) -> list[_Span]:
    """All-reduces of DDP's buckets: the reducer has no hook, so they come from the collectives."""
    buckets = {unit for unit, row in log.units.items() if is_bucket(row["kind"])}
    if collectives is None or not buckets:
        return []
    return [
        (row["unit"], SpanKind.ALL_REDUCE.value, row["issue_ns"], row["end_ns"], row["size_bytes"] or 0, False, "")
        for row in collectives.select(["unit", "issue_ns", "end_ns", "size_bytes"]).to_pylist()
        if row["unit"] in buckets
    ]
