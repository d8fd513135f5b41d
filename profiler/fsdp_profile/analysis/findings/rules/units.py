"""Findings about how the model is wrapped in units, when they are gathered, and how their parameters are stored."""

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.analysis.memory.ledger import STATES, TRANSIENT, Peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.units.in_flight import gathers, in_flight
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.core.schema import CollectiveKind, Phase, SpanKind, UnitKind
from fsdp_profile.core.words import label_of
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.ingest.units import is_sharded

MIN_SHARE: Final = 0.05
LARGEST_UNIT: Final = 0.5
"""Of the parameters, in one unit of at least MIN_UNIT_BYTES: no wrap policy, or one that found nothing."""
MIN_UNIT_BYTES: Final = 1 << 20
DEEP: Final = 2
"""Units gathered ahead at once."""
PAYS: Final = 0.5
"""Transient bytes of sharding, as a share of what it saves, from which on it hardly pays."""


def one_unit(run: Run, peak: Peak) -> Iterator[Finding]:
    """One unit holds most parameters: all of them are gathered at once."""
    units = _sharded(run, peak.rank)
    numel, whole = numbers(units, "numel"), numbers(units, "unsharded_bytes")
    if not numel.sum():
        return
    row = int(np.argmax(numel))
    share = float(numel[row] / numel.sum())
    if share < LARGEST_UNIT or whole[row] < MIN_UNIT_BYTES:
        return
    name = str(strings(units, "name")[row])
    yield Finding(
        rule="one-unit",
        severity=Severity.COSTS,
        claim=f"1 unit, {unit_text(name)}, holds {ratio_text(share)} of the parameters: {bytes_text(int(whole[row]))} "
        "are gathered at once, in forward and in backward.",
        evidence={"numel": int(numel[row]), "share": share, "gathered_bytes": int(whole[row]), "num_units": len(numel)},
        action="Wrap each block: an auto_wrap_policy (FSDP1), fully_shard on every layer before the root (FSDP2).",
        rank=peak.rank,
        unit=name,
    )


def root_stays_gathered(run: Run, peak: Peak) -> Iterator[Finding]:
    """The root unit is not resharded after forward: that is FSDP's default, whatever the blocks do."""
    units = _sharded(run, peak.rank)
    spans = run.table("unit_spans", rank=peak.rank)
    torch = run.manifest.versions.get("torch", "")
    for row in units.to_pylist():
        if row["name"] or row["unsharded_bytes"] < MIN_SHARE * peak.allocated_bytes:
            continue
        mine = (numbers(spans, "unit") == row["unit"]) & (numbers(spans, "step") >= 0)
        of = strings(spans, "kind")
        gathered = mine & (of == SpanKind.UNSHARDED.value) & (strings(spans, "phase") == Phase.FORWARD.value)
        if not gathered.any():
            continue
        start, end = numbers(spans, "start_ns")[gathered], numbers(spans, "end_ns")[gathered]
        if not _lasts_into_backward(run, peak.rank, start, end):
            continue
        yield Finding(
            rule="root-stays-gathered",
            severity=Severity.EXPLAINS,
            claim=f"(root) stays gathered from forward to backward, {bytes_text(row['unsharded_bytes'])}: the root is "
            f"not resharded after forward unless it is asked for{f' (torch {torch})' if torch else ''}.",
            evidence={"unsharded_bytes": row["unsharded_bytes"], "gathered_ns": int(np.median(end - start))},
            action="Give large parameters of the root (embedding, head) units of their own; FSDP2 takes "
            "reshard_after_forward=True for the root too.",
            saves_bytes=row["unsharded_bytes"],
            rank=peak.rank,
            unit="",
        )


def units_stay_gathered(run: Run, peak: Peak) -> Iterator[Finding]:
    """Blocks that are not resharded after forward: the whole model is gathered when backward begins."""
    units = _sharded(run, peak.rank)
    keeps = (strings(units, "reshard_after_forward") == "no") & (strings(units, "name") != "")
    whole = int(numbers(units, "unsharded_bytes")[keeps].sum())
    if not keeps.any() or whole < MIN_SHARE * peak.allocated_bytes:
        return
    held = peak.by_category.get(Category.UNSHARDED_PARAM, 0)
    yield Finding(
        rule="units-stay-gathered",
        severity=Severity.EXPLAINS,
        claim=f"{int(keeps.sum())} of {len(keeps)} units stay gathered from forward to backward "
        f"({bytes_text(whole)}, {bytes_text(held)} of them at the peak): reshard_after_forward=False, or "
        "SHARD_GRAD_OP.",
        evidence={"num_units": int(keeps.sum()), "unsharded_bytes": whole, "at_peak_bytes": held},
        action="reshard_after_forward=True (FULL_SHARD) frees them after forward, for one more all-gather each.",
        saves_bytes=max(held - 2 * int(numbers(units, "unsharded_bytes").max()), 0),
        is_estimate=True,
        rank=peak.rank,
    )


def gathered_for_nothing(run: Run, peak: Peak) -> Iterator[Finding]:
    """A unit was gathered and resharded, and neither its forward nor its backward ran."""
    found = gathers(run, rank=peak.rank)
    if found.column("use_ns").null_count == found.num_rows:
        return  # nothing tells when units were used
    idle = found.filter(found.column("use_ns").is_null())
    for name in dict.fromkeys(idle.column("name").to_pylist()):
        mine = idle.filter(pa.array([n == name for n in idle.column("name").to_pylist()]))
        size = int(numbers(mine, "size_bytes").sum())
        yield Finding(
            rule="gathered-for-nothing",
            severity=Severity.COSTS,
            claim=f"{unit_text(name)} was gathered {mine.num_rows} times and not used: {bytes_text(size)} of "
            "all-gathers.",
            evidence={"num_gathers": mine.num_rows, "size_bytes": size},
            action="A prefetch of a unit that does not come next, an unshard() with no forward after it, or a branch "
            "that is not taken.",
            rank=peak.rank,
            unit=name,
        )


def deep_prefetch(run: Run, peak: Peak) -> Iterator[Finding]:
    """Several units are gathered ahead of their use at once."""
    for found in in_flight(run, rank=peak.rank):
        if found.max_ahead < DEEP or found.ahead_bytes < MIN_SHARE * peak.allocated_bytes:
            continue
        yield Finding(
            rule="deep-prefetch",
            severity=Severity.COSTS,
            claim=f"In {label_of(Phase, found.phase)} up to {found.max_ahead} units are gathered ahead of their use: "
            f"{bytes_text(found.ahead_bytes)}.",
            evidence={"max_ahead": found.max_ahead, "ahead_bytes": found.ahead_bytes},
            action="Prefetch one unit ahead (set_modules_to_forward_prefetch with one module, limit_all_gathers=True).",
            saves_bytes=found.ahead_bytes * (found.max_ahead - 1) // found.max_ahead,
            is_estimate=True,
            rank=peak.rank,
        )


def mixed_frozen(run: Run, peak: Peak) -> Iterator[Finding]:
    """A flat parameter of frozen and trainable parameters: its gradient is made for all of them."""
    alike: dict[tuple[int, int, str, str], list[str]] = {}
    for row in run.table("units", rank=peak.rank).to_pylist():
        trainable, numel = row["trainable_numel"], row["numel"]
        if row["kind"] == UnitKind.FSDP1.value and trainable is not None and 0 < trainable < numel:
            alike.setdefault((numel, trainable, row["dtype"], row["compute_dtype"]), []).append(row["name"])
    for (numel, trainable, dtype, compute_dtype), names in alike.items():
        frozen = numel - trainable
        wide = _itemsize(dtype) or 4
        narrow = _itemsize(compute_dtype) or wide
        sizes = " / ".join(f"{bytes_text(numel * size)} in {8 * size} bit" for size in sorted({narrow, wide}))
        more = f" (and {len(names) - 1} units like it)" if len(names) > 1 else ""
        yield Finding(
            rule="mixed-frozen",
            severity=Severity.COSTS,
            claim=f"{unit_text(names[0])}{more} mixes {trainable:,} trainable and {frozen:,} frozen parameters "
            f"({ratio_text(frozen / numel, digits=2)} frozen): before its reduce-scatter it holds a gradient of all "
            f"{numel:,} elements, {sizes}.",
            evidence={
                "numel": numel,
                "trainable_numel": trainable,
                "frozen_ratio": frozen / numel,
                "transient_bytes": numel * narrow,
                "num_units": len(names),
            },
            action="Wrap frozen and trainable modules apart (a lambda policy on requires_grad), or use FSDP2, whose "
            "units reduce parameter by parameter.",
            saves_bytes=frozen * narrow,
            is_estimate=True,
            rank=peak.rank,
            unit=names[0],
        )


def frozen_in_float32(run: Run, peak: Peak) -> Iterator[Finding]:
    """Frozen weights are stored in float32, although they need no master copy."""
    units = run.table("units", rank=peak.rank)
    frozen = kept = 0
    for row in units.to_pylist():
        if row["trainable_numel"] is None or row["dtype"] != "float32" or not row["numel"]:
            continue
        mine = row["numel"] - row["trainable_numel"]
        frozen += mine
        kept += row["sharded_bytes"] * mine // row["numel"]
    if kept < MIN_SHARE * peak.allocated_bytes:
        return
    yield Finding(
        rule="frozen-in-float32",
        severity=Severity.COSTS,
        claim=f"{frozen:,} frozen parameters are stored in float32, 4 B each: {bytes_text(kept)} on this rank, where "
        f"bfloat16 would need {bytes_text(kept // 2)}.",
        evidence={"frozen_numel": frozen, "kept_bytes": kept, "bytes_per_param": 4},
        action="Load frozen weights in bfloat16 and keep only the trainable ones in float32.",
        saves_bytes=kept // 2,
        is_estimate=True,
        rank=peak.rank,
    )


def optimizer_of_other_params(run: Run, peak: Peak) -> Iterator[Finding]:
    """The optimizer was built before sharding: it steps parameters that the model does not have any more."""
    for told in run.manifest.extra.get("optimizers", []):
        foreign, size = int(told.get("num_foreign", 0)), int(told.get("foreign_bytes", 0))
        if not foreign:
            continue
        yield Finding(
            rule="optimizer-of-other-params",
            severity=Severity.PROBLEM,
            claim=f"{told.get('name', 'An optimizer')} holds {foreign} parameters that are not in the model, of "
            f"{told.get('num_params', foreign)} ({bytes_text(size)}): stepping them trains nothing and keeps them "
            "alive.",
            evidence={"num_foreign": foreign, "num_params": int(told.get("num_params", foreign)), "bytes": size},
            action="Build the optimizer after fully_shard or FullyShardedDataParallel: they replace the parameters.",
            saves_bytes=size,
            rank=peak.rank,
        )


def too_few_ranks(run: Run, peak: Peak) -> Iterator[Finding]:
    """The transient bytes of sharding are a large share of what it saves."""
    units = _sharded(run, peak.rank)
    if not units.num_rows:
        return
    shards = int(numbers(units, "shard_size").max())
    saved, transient = peak.bytes_of(STATES) * (shards - 1), peak.bytes_of(TRANSIENT)
    if shards < 2 or not saved or transient < PAYS * saved:
        return
    yield Finding(
        rule="too-few-ranks",
        severity=Severity.EXPLAINS,
        claim=f"Over {shards} ranks sharding saves {bytes_text(saved)} of states and needs {bytes_text(transient)} of "
        "gathered parameters and buffers at the peak.",
        evidence={"shard_size": shards, "saved_bytes": saved, "transient_bytes": transient},
        action="Smaller units make the second number smaller; more ranks make the first one larger.",
        is_estimate=True,
        rank=peak.rank,
    )


def replicas_not_reduced(run: Run, peak: Peak) -> Iterator[Finding]:
    """HYBRID_SHARD whose replicas never all-reduce: gradients differ between them, silently."""
    units = _sharded(run, peak.rank)
    hybrid = [u for u in units.to_pylist() if "HYBRID" in u["sharding"] or u["replicate_size"] > 1]
    table = run.table("collectives", rank=peak.rank)
    trained = numbers(table, "step") >= 0
    kinds = strings(table, "kind")[trained]
    scatters = kinds == CollectiveKind.REDUCE_SCATTER.value
    if not hybrid or not scatters.any() or (kinds == CollectiveKind.ALL_REDUCE.value).any():
        return
    if all(u["replicate_size"] == 1 and u["shard_size"] == run.manifest.world_size for u in hybrid):
        return
    yield Finding(
        rule="replicas-not-reduced",
        severity=Severity.PROBLEM,
        claim=f"{len(hybrid)} units are sharded over {hybrid[0]['shard_size']} of {run.manifest.world_size} ranks, and "
        "no all-reduce between the replicas was seen: their gradients are not synchronised.",
        evidence={"shard_size": hybrid[0]["shard_size"], "world_size": run.manifest.world_size},
        action="Give HYBRID_SHARD a 2-D device_mesh, or a tuple of process groups.",
        rank=peak.rank,
    )


def _sharded(run: Run, rank: int) -> pa.Table:
    units = run.table("units", rank=rank)
    return units.filter(pa.array(is_sharded(units)))


def _lasts_into_backward(run: Run, rank: int, start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> bool:
    """Whether a backward begins inside most of these spans."""
    phases = run.table("phases", rank=rank)
    begins = np.sort(numbers(phases, "start_ns")[strings(phases, "phase") == Phase.BACKWARD.value])
    inside = np.searchsorted(begins, end) > np.searchsorted(begins, start)
    return bool(2 * inside.sum() > len(inside))


def _itemsize(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 0


RULES: Final = (
    one_unit,
    root_stays_gathered,
    units_stay_gathered,
    gathered_for_nothing,
    deep_prefetch,
    mixed_frozen,
    frozen_in_float32,
    optimizer_of_other_params,
    too_few_ranks,
    replicas_not_reduced,
)
