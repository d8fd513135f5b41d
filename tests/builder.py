"""RunBuilder: the smallest run that shows a fact, written as a real run directory.

Times are given in any integer unit and stored as nanoseconds as they are. Without `step()` everything
happens in step 0; without `phase()` everything is FORWARD. At one time frees come before allocs.
"""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Manifest, Model, RankRecord
from fsdp_profile.core.schema import (
    NO_UNIT,
    NOT_FREED,
    TABLES,
    Basis,
    CollectiveKind,
    Ending,
    Phase,
    SpanKind,
    Strategy,
    UnitKind,
)
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.ingest.tables import make_table, write_table


class RunBuilder:
    """Collects rows per rank; `build()` writes and opens the run."""

    def __init__(self, name: str = "run", *, strategy: Strategy = Strategy.FSDP2, path: Path | None = None) -> None:
        self.path = path if path is not None else Path(tempfile.mkdtemp(prefix="fsdp-profile-test-")) / name
        self.manifest: dict[str, Any] = {
            "name": name,
            "created": "2026-01-02T03:04:05+00:00",
            "strategy": strategy,
            "device_type": "cpu",
            "complete": True,
            "model": Model(name="GPT", numel=100, num_params=4, param_bytes=400, dtypes={"float32": 100}),
            "versions": {"torch": "2.13.0"},
        }
        self._rank = 0
        self._rows: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        self._totals: dict[int, dict[str, int]] = {}
        self._reserved: dict[int, dict[int, int]] = {}
        self._blocks: dict[int, list[dict[str, Any]]] = defaultdict(list)

    def rank(self, rank: int) -> "RunBuilder":
        """What follows belongs to this rank."""
        self._rank = rank
        self._rows[rank]["steps"]  # a rank with no rows exists too
        return self

    def set(self, **manifest: Any) -> "RunBuilder":
        """Fields of the manifest."""
        self.manifest.update(manifest)
        return self

    def row(self, table: str, **values: Any) -> "RunBuilder":
        """A row of any table, as it is."""
        self._rows[self._rank][table].append(values)
        return self

    def step(self, step: int, start: int, end: int, *, complete: bool = True) -> "RunBuilder":
        return self.row("steps", step=step, start_ns=start, end_ns=end, complete=complete, recorded=True)

    def phase(self, phase: Phase, start: int, end: int, *, step: int = 0) -> "RunBuilder":
        return self.row("phases", step=step, phase=phase, start_ns=start, end_ns=end)

    def unit(self, name: str, *, numel: int = 0, sharded: int = 0, unsharded: int = 0, **values: Any) -> "RunBuilder":
        defaults = {
            "unit": len(self._rows[self._rank]["units"]),
            "name": name,
            "kind": UnitKind.FSDP2,
            "numel": numel,
            "num_params": 1,
            "sharded_bytes": sharded,
            "unsharded_bytes": unsharded,
            "dtype": "float32",
            "compute_dtype": "float32",
            "shard_size": 2,
            "replicate_size": 1,
            "reshard_after_forward": "yes",
            "sharding": "",
        }
        return self.row("units", **{**defaults, **values})

    def span(self, unit: int, kind: SpanKind, start: int, end: int, *, size: int = 0, **values: Any) -> "RunBuilder":
        defaults = {
            "unit": unit,
            "kind": kind,
            "step": 0,
            "phase": Phase.FORWARD,
            "start_ns": start,
            "end_ns": end,
            "size_bytes": size,
            "prefetched": False,
        }
        return self.row("unit_spans", **{**defaults, **values})

    def collective(
        self, kind: CollectiveKind, start: int, end: int, *, unit: int = NO_UNIT, **values: Any
    ) -> "RunBuilder":
        defaults = {
            "kind": kind,
            "start_ns": start,
            "end_ns": end,
            "issue_ns": start,
            "step": 0,
            "phase": Phase.FORWARD,
            "unit": unit,
            "size_bytes": 0,
            "group_size": 2,
            "transport": "gloo:test",
        }
        return self.row("collectives", **{**defaults, **values})

    def kernel(self, start: int, end: int, *, name: str = "aten::mm", step: int = 0) -> "RunBuilder":
        return self.row("kernels", name=name, start_ns=start, end_ns=end, stream=0, step=step)

    def totals(self, *, reserved: int, active: int) -> "RunBuilder":
        """What the caching allocator reports at every event of this rank."""
        self._totals[self._rank] = {"reserved_bytes": reserved, "active_bytes": active}
        return self

    def reserved_by_step(self, reserved: dict[int, int]) -> "RunBuilder":
        """What the caching allocator holds at every event of a step of this rank."""
        self._reserved[self._rank] = reserved
        return self

    def device_sample(self, at: int, **values: Any) -> "RunBuilder":
        return self.row("device_samples", t_ns=at, **values)

    def alloc(
        self,
        *,
        at: int,
        free: int | None = None,
        size: int,
        category: Category = Category.ACTIVATION,
        unit: int = NO_UNIT,
        name: str = "",
        operator: str = "aten::empty",
        site: str = "",
        module: str = "",
    ) -> "RunBuilder":
        """A block; without `free` it lives to the end."""
        self._blocks[self._rank].append(
            {
                "at": at,
                "free": free,
                "size": size,
                "category": category,
                "unit": unit,
                "name": name,
                "operator": operator,
                "site": site,
                "module": module,
            }
        )
        self._rows[self._rank]["steps"]
        return self

    def build(self) -> Run:
        """Write the run directory and open it."""
        self.path.mkdir(parents=True, exist_ok=True)
        ranks = sorted(self._rows) or [0]
        for rank in ranks:
            folder = layout.rank_dir(self.path, rank)
            folder.mkdir(exist_ok=True)
            rows = self._rows[rank]
            for table in ("units", "unit_spans", "collectives", "kernels"):
                rows[table]  # as the conversion of a rank writes them, empty ones too
            rows["steps"] = rows["steps"] or [
                {"step": 0, "start_ns": 0, "end_ns": 10**9, "complete": True, "recorded": True}
            ]
            rows["phases"] = rows["phases"] or [
                {"step": s["step"], "phase": Phase.FORWARD, "start_ns": s["start_ns"], "end_ns": s["end_ns"]}
                for s in rows["steps"]
            ]
            rows["allocations"], rows["memory_samples"] = _ledger(self._blocks[rank], rows)
            for sample in rows["memory_samples"]:
                sample.update(self._totals.get(rank, {}))
                if rank in self._reserved:
                    sample["reserved_bytes"] = self._reserved[rank][sample["step"]]
            for table, found in rows.items():
                columns = {
                    c.name: [r.get(c.name) for r in found]
                    for c in TABLES[table]
                    if not c.nullable or any(c.name in r for r in found)
                }
                write_table(layout.table_path(self.path, rank, table), make_table(table, columns))
        self.manifest.setdefault("world_size", len(ranks))
        self.manifest.setdefault(
            "ranks", [RankRecord(rank=r, ending=Ending.COMPLETED, exit_code=0, num_steps=1) for r in ranks]
        )
        write_manifest(self.path, Manifest(**self.manifest))
        return load_run(self.path)


def _ledger(blocks: list[dict[str, Any]], rows: dict[str, list[dict[str, Any]]]) -> tuple[list[Any], list[Any]]:
    events = [(b["at"], 1, i) for i, b in enumerate(blocks)]
    events += [(b["free"], 0, i) for i, b in enumerate(blocks) if b["free"] is not None]
    events.sort()
    start_event, end_event = {}, {}
    samples: list[dict[str, Any]] = []
    total = 0
    for row, (t, is_alloc, i) in enumerate(events):
        delta = blocks[i]["size"] if is_alloc else -blocks[i]["size"]
        total += delta
        (start_event if is_alloc else end_event)[i] = row
        samples.append(
            {
                "t_ns": t,
                "step": _at(rows["steps"], t, "step"),
                "phase": _at(rows["phases"], t, "phase"),
                "delta_bytes": delta,
                "allocated_bytes": total,
                "reported_bytes": total,
                "unreported_free_bytes": 0,
            }
        )
    allocations = [
        {
            "allocation": i,
            "address": 4096 + i,
            "size_bytes": b["size"],
            "start_ns": b["at"],
            "end_ns": NOT_FREED if b["free"] is None else b["free"],
            "start_event": start_event[i],
            "end_event": end_event.get(i, NOT_FREED),
            "category": b["category"],
            "basis": Basis.NONE if b["category"] is Category.UNKNOWN else Basis.TAG,
            "unit": b["unit"],
            "name": b["name"],
            "operator": b["operator"],
            "site": b["site"],
            "module": b["module"],
            "step": _at(rows["steps"], b["at"], "step"),
            "phase": _at(rows["phases"], b["at"], "phase"),
            "stream": 0,
            "free_unreported": False,
        }
        for i, b in enumerate(blocks)
    ]
    return allocations, samples


def _at(spans: list[dict[str, Any]], t: int, key: str) -> Any:
    starts = np.array([s["start_ns"] for s in spans])
    order = np.argsort(starts, kind="stable")
    i = int(np.searchsorted(starts[order], t, side="right")) - 1
    return spans[order[max(i, 0)]][key]


def small_step(**weight: object) -> RunBuilder:
    """Step 0 of 10 ms: 1 MiB of parameters from before; 2 MiB of activations from 2 to 8 ms, in layers.0.

    `weight` is what else is known of the block of parameters.
    """
    ms, mib = 1_000_000, 1 << 20
    return (
        RunBuilder("small")
        .step(-1, 0, 10 * ms)
        .step(0, 10 * ms, 20 * ms)
        .phase(Phase.SETUP, 0, 10 * ms, step=-1)
        .phase(Phase.FORWARD, 10 * ms, 15 * ms)
        .phase(Phase.BACKWARD, 15 * ms, 20 * ms)
        .unit("")
        .unit("layers.0")
        .span(0, SpanKind.FORWARD, 11 * ms, 15 * ms)
        .span(1, SpanKind.FORWARD, 12 * ms, 14 * ms)
        .alloc(at=1 * ms, size=mib, category=Category.PARAM, **weight)
        .alloc(at=12 * ms, free=18 * ms, size=2 * mib)
    )
