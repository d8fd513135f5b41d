"""Findings about what fills the peak, and about the steps and phases it changes in."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.memory.growth import growth, kept_unsharded
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.active_unit import is_word
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ratio_text, unit_text
from fsdp_profile.core.schema import SETUP_STEP, Phase
from fsdp_profile.core.words import label_of
from fsdp_profile.ingest.tables import numbers, strings

MIN_SHARE: Final = 0.05
"""Share of the peak below which nothing is reported."""
DOMINATES: Final = 0.5

_COMMUNICATION: Final = (Category.ALL_GATHER, Category.REDUCE_SCATTER)


def activations_dominate(run: Run, peak: Peak) -> Iterator[Finding]:
    """Most of the peak is activations: no sharding of states makes it small."""
    held = peak.by_category.get(Category.ACTIVATION, 0)
    if held < DOMINATES * peak.allocated_bytes:
        return
    yield Finding(
        rule="activations-dominate",
        severity=Severity.EXPLAINS,
        claim=f"Activations are {bytes_text(held)} of the {bytes_text(peak.allocated_bytes)} peak "
        f"({ratio_text(held / peak.allocated_bytes)}); sharding parameters, gradients and optimizer does not divide "
        "them.",
        evidence={"activation_bytes": held, "peak_bytes": peak.allocated_bytes},
        action="Checkpoint the activations of each unit, or give a rank a smaller batch or shorter sequences.",
        saves_bytes=memory.checkpointing_saves_bytes(run, peak),
        is_estimate=True,
        rank=peak.rank,
    )


def communication_buffers(run: Run, peak: Peak) -> Iterator[Finding]:
    """Buffers of all-gathers and reductions, which are neither parameters nor gradients."""
    held = peak.bytes_of(_COMMUNICATION)
    if held < MIN_SHARE * peak.allocated_bytes:
        return
    gather, reduce = (peak.by_category.get(category, 0) for category in _COMMUNICATION)
    yield Finding(
        rule="communication-buffers",
        severity=Severity.EXPLAINS,
        claim=f"Communication buffers hold {bytes_text(held)} at the peak ({bytes_text(gather)} of all-gathers, "
        f"{bytes_text(reduce)} of gradient reductions): they are not parameters or gradients.",
        evidence={"all_gather_bytes": gather, "reduce_scatter_bytes": reduce, "peak_bytes": peak.allocated_bytes},
        action="Smaller units need smaller buffers; fewer gathers ahead need fewer of them.",
        rank=peak.rank,
    )


def buckets_duplicate_gradients(run: Run, peak: Peak) -> Iterator[Finding]:
    """DDP keeps every gradient twice: in the parameter's .grad and in its bucket."""
    bucket, grad = peak.by_category.get(Category.BUCKET, 0), peak.by_category.get(Category.GRAD, 0)
    if bucket < MIN_SHARE * peak.allocated_bytes:
        return
    yield Finding(
        rule="buckets-duplicate-gradients",
        severity=Severity.COSTS,
        claim=f"DDP's buckets hold {bytes_text(bucket)} beside {bytes_text(grad)} of gradients: each gradient is there "
        "twice.",
        evidence={"bucket_bytes": bucket, "grad_bytes": grad},
        action="DistributedDataParallel(..., gradient_as_bucket_view=True): gradients become views of the buckets.",
        saves_bytes=bucket,
        rank=peak.rank,
    )


def optimizer_temporaries(run: Run, peak: Peak) -> Iterator[Finding]:
    """The peak is inside optimizer.step, made by temporaries for all parameters at once."""
    held = peak.by_category.get(Category.OPTIMIZER_TEMPORARY, 0)
    if held < MIN_SHARE * peak.allocated_bytes:
        return
    states = peak.by_category.get(Category.OPTIMIZER_STATE, 0)
    kept = peak.by_category.get(Category.PARAM, 0)
    a_byte = f" ({4 * held / kept:.1f} B for each 4 B of parameter)" if kept else ""
    yield Finding(
        rule="optimizer-temporaries",
        severity=Severity.COSTS,
        claim=f"optimizer.step allocates {bytes_text(held)} of temporaries{a_byte} in addition to {bytes_text(states)} "
        "of optimizer state: foreach works on all parameters at once.",
        evidence={
            "optimizer_temporary_bytes": held,
            "optimizer_state_bytes": states,
            "peak_bytes": peak.allocated_bytes,
        },
        action="fused=True (no temporaries) or foreach=False (one parameter at a time).",
        saves_bytes=held,
        rank=peak.rank,
    )


def states_born_in_first_step(run: Run, peak: Peak) -> Iterator[Finding]:
    """Adam's states are allocated at the end of the first step, so its peak differs from that of later steps."""
    peaks = {p.step: p for p in memory.peak_of_steps(run, rank=peak.rank)}
    if 0 not in peaks or 1 not in peaks:
        return
    ends = [memory.events_of_step(run, rank=peak.rank, step=step)[-1:] for step in (0, SETUP_STEP)]
    ledger = memory.timeline_at(run, rank=peak.rank, events=np.concatenate(ends)).by_category[Category.OPTIMIZER_STATE]
    born = int(ledger[0]) - int(ledger[1:].sum())
    if born < MIN_SHARE * peak.allocated_bytes:
        return
    later = max((p for step, p in peaks.items() if step > 0), key=lambda p: p.allocated_bytes)
    change = later.allocated_bytes - peaks[0].allocated_bytes
    way = "understates" if change > 0 else "overstates" if change < 0 else "equals"
    yield Finding(
        rule="states-born-in-first-step",
        severity=Severity.EXPLAINS,
        claim=f"Step 0 allocates {bytes_text(born)} of optimizer state at its end: its peak, "
        f"{bytes_text(peaks[0].allocated_bytes)}, {way} the {bytes_text(later.allocated_bytes)} of step {later.step}."
        + _reserved(run, peaks[0], later, born),
        evidence={
            "optimizer_state_bytes": born,
            "first_peak_bytes": peaks[0].allocated_bytes,
            "later_peak_bytes": later.allocated_bytes,
        },
        action="Compare memory from step 1 on.",
        rank=peak.rank,
    )


def _reserved(run: Run, first: Peak, later: Peak, born: int) -> str:
    """How much of the rise in reserved bytes is those states; '' without a caching allocator."""
    samples = run.table("memory_samples", rank=first.rank)
    if samples.column("reserved_bytes").null_count == samples.num_rows:
        return ""
    reserved, step = samples.column("reserved_bytes").to_numpy(), numbers(samples, "step")
    rise = int(reserved[step == later.step].max() - reserved[step == first.step].max())
    if rise <= 0:
        return ""
    return (
        f" Reserved rises by {bytes_text(rise)}: {bytes_text(min(born, rise))} of it are these states, "
        f"{bytes_text(max(rise - born, 0))} the allocator's."
    )


def unsharded_gradients_held(run: Run, peak: Peak) -> Iterator[Finding]:
    """Accumulation without synchronisation keeps whole gradients from one micro-batch to the next."""
    phases = run.table("phases", rank=peak.rank)
    is_forward = strings(phases, "phase") == Phase.FORWARD.value
    t_ns = numbers(run.table("memory_samples", rank=peak.rank), "t_ns")
    row = np.searchsorted(t_ns, numbers(phases, "start_ns")[is_forward], side="right") - 1
    live = memory.timeline_at(run, rank=peak.rank, events=np.maximum(row, 0)).by_category[Category.UNSHARDED_GRAD]
    micro: dict[int, int] = {}
    for step, at in zip(numbers(phases, "step")[is_forward].tolist(), np.where(row < 0, 0, live).tolist(), strict=True):
        micro[step] = micro.get(step, -1) + 1
        held = at if step >= 0 else 0
        if held and micro[step]:
            at_peak = peak.by_category.get(Category.UNSHARDED_GRAD, 0)
            yield Finding(
                rule="unsharded-gradients-held",
                severity=Severity.COSTS,
                claim=f"{bytes_text(held)} of gradients are unsharded since micro-batch {micro[step] - 1} of step "
                f"{step}: accumulation without synchronisation keeps the whole gradient of every parameter.",
                evidence={"unsharded_grad_bytes": held, "step": step, "micro_batch": micro[step] - 1},
                action="Synchronise in every micro-batch (accelerate: sync_each_batch=True): more traffic, sharded "
                "gradients.",
                saves_bytes=at_peak or held,
                rank=peak.rank,
            )
            return


def grows(run: Run, peak: Peak) -> Iterator[Finding]:
    """Live bytes at the ends of steps rise step over step."""
    for found in growth(run, rank=peak.rank):
        site = found.sites[0] if found.sites else None
        where = (
            f", from {site.operator or 'an unnamed operator'} in {label_of(Phase, site.phase)}"
            if site is not None
            else ""
        )
        yield Finding(
            rule="leak",
            severity=Severity.PROBLEM,
            claim=f"Live bytes of {found.category.label} grow by {bytes_text(found.bytes_per_step)} a step{where}: "
            f"{bytes_text(found.first_bytes)} after step {found.steps[0]}, {bytes_text(found.last_bytes)} after step "
            f"{found.steps[-1]}.",
            evidence={"bytes_per_step": found.bytes_per_step, "last_bytes": found.last_bytes},
            action="Something keeps these tensors: a list of losses with their graph (use .item() or .detach()), a "
            "cache, a hook.",
            saves_bytes=found.last_bytes - found.first_bytes,
            rank=peak.rank,
        )


def keeps_unit_unsharded(run: Run, peak: Peak) -> Iterator[Finding]:
    """A reference keeps gathered parameters alive after their reshard."""
    for kept in kept_unsharded(run, rank=peak.rank):
        yield Finding(
            rule="kept-unsharded",
            severity=Severity.PROBLEM,
            claim=f"{bytes_text(kept.size_bytes)} of gathered parameters of {unit_text(kept.name)} are still in memory "
            f"at the end of step {kept.step}, after its reshard: something refers to them.",
            evidence={"size_bytes": kept.size_bytes, "step": kept.step},
            action="Look for views of parameters that are kept outside of forward (a list, a hook, a closure).",
            saves_bytes=kept.size_bytes,
            rank=peak.rank,
            unit=kept.name,
        )


def checkpoint_spike(run: Run, peak: Peak) -> Iterator[Finding]:
    """Saving or loading a state dict needs more than training does."""
    samples = run.table("memory_samples", rank=peak.rank)
    is_it = is_word(samples, "phase", Phase.CHECKPOINT) & (numbers(samples, "step") >= 0)
    allocated = numbers(samples, "allocated_bytes")
    if not is_it.any() or is_it.all():
        return
    during, otherwise = int(allocated[is_it].max()), int(allocated[(numbers(samples, "step") >= 0) & ~is_it].max())
    if during <= otherwise:
        return
    yield Finding(
        rule="checkpoint-spike",
        severity=Severity.COSTS,
        claim=f"The peak is in a checkpoint: {bytes_text(during)}; training itself needs {bytes_text(otherwise)}.",
        evidence={"checkpoint_bytes": during, "training_bytes": otherwise},
        action="Save sharded state dicts (torch.distributed.checkpoint), or full ones with CPU offload.",
        saves_bytes=during - otherwise,
        rank=peak.rank,
    )


RULES: Final = (
    activations_dominate,
    communication_buffers,
    buckets_duplicate_gradients,
    optimizer_temporaries,
    states_born_in_first_step,
    unsharded_gradients_held,
    grows,
    keeps_unit_unsharded,
    checkpoint_spike,
)
