"""What ran, on what, for how long, what recording it cost, and what was not recorded."""

from collections.abc import Mapping, Sequence
from typing import Final

from fsdp_profile.analysis.ranks.overview import RankSummary
from fsdp_profile.core.humanize import bytes_text, ns_text, slowdown_text
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.present.values import NOT_RECORDED, Fact, Sentence, name, say

RECEIPT_TITLE: Final = "What recording cost"
CPU_NOTE: Final = (
    "Recorded on CPU: these are the tensors that a GPU would hold, counted in host memory; times are those of the CPU."
)


def strategy_text(manifest: Manifest) -> str:
    """The strategy in detail, as far as it was seen."""
    return manifest.strategy_detail or manifest.strategy.label


def run_facts(manifest: Manifest, ranks: Sequence[RankSummary]) -> list[Fact]:
    """What ran, line by line; how its ranks ended is a subject of its own."""
    script = " ".join([manifest.script, *manifest.script_args])
    return [
        Fact(label="strategy", value=say(strategy_text(manifest))),
        Fact(label="model", value=model(manifest)),
        Fact(label="device", value=device(manifest)),
        Fact(label="torch", value=say(manifest.versions.get("torch", NOT_RECORDED))),
        Fact(label="steps", value=steps(ranks)),
        Fact(label="script", value=say(name(script) if script.strip() else NOT_RECORDED)),
        Fact(label="started", value=say(manifest.created)),
    ]


def model(manifest: Manifest) -> Sentence:
    """The model, its size and dtypes."""
    found = manifest.model
    if not found.numel:
        return say(name(found.name), ": ", NOT_RECORDED) if found.name else say(NOT_RECORDED)
    dtypes = sorted(found.dtypes.items(), key=lambda item: -item[1])
    types = dtypes[0][0] if len(dtypes) == 1 else ", ".join(f"{numel:,} {dtype}" for dtype, numel in dtypes)
    frozen = found.numel - found.trainable_numel
    return say(
        say(name(found.name), ": ") if found.name else "",
        f"{found.numel:,} parameters, {bytes_text(found.param_bytes)}",
        f" ({types})" if types else "",
        f", {frozen:,} of them frozen" if found.trainable_numel and frozen else "",
    )


def device(manifest: Manifest) -> Sentence:
    """How many of which devices, and the backend between them."""
    kind = manifest.device_name or manifest.device_type or NOT_RECORDED
    if manifest.device_type == "cpu":
        kind = f"CPU ({manifest.device_name})" if manifest.device_name else "CPU"
    each = f", {bytes_text(manifest.device_total_bytes)} each" if manifest.device_total_bytes else ""
    backend = f", {manifest.backend}" if manifest.backend else ""
    return say(f"{manifest.world_size} x {kind}{each}{backend}")


def steps(ranks: Sequence[RankSummary]) -> Sentence:
    """How many steps are complete, and how long one takes."""
    if not ranks:
        return say(NOT_RECORDED)
    fewest, most = min(r.num_steps for r in ranks), max(r.num_steps for r in ranks)
    counted = f"{most:,} complete" if fewest == most else f"{fewest:,} to {most:,} complete, by rank"
    slowest = max((r.median_step_ns for r in ranks if r.median_step_ns is not None), default=None)
    if slowest is None:
        return say(counted)
    of_whom = ", slowest rank" if len(ranks) > 1 else ""
    return say(f"{counted}; {ns_text(slowest)} each (median after the first{of_whom})")


def receipt_facts(manifest: Manifest) -> list[Fact]:
    """What recording cost, measured."""
    cost = manifest.receipt
    if not (cost.allocator_events or cost.hook_events or cost.raw_bytes):
        return [Fact(label="recording", value=say(f"cost {NOT_RECORDED}"))]
    tables = Fact(label="after the run", value=say(f"{ns_text(cost.convert_ns)} to make tables"))
    if manifest.is_imported:
        return [
            Fact(label="recording", value=say(f"by other means: cost {NOT_RECORDED}")),
            Fact(label="imported", value=say(bytes_text(cost.raw_bytes))),
            tables,
        ]
    events = f"{cost.allocator_events:,} of the allocator, {cost.hook_events:,} of hooks"
    pause = f"{ns_text(cost.flush_ns)} between steps, to stop recording and write (slowest rank)"
    slowdown = f"{NOT_RECORDED}: too few steps after the recorded ones to compare with"
    if cost.bare_step_ns is not None:
        slowdown = slowdown_text(cost.recorded_step_ns, cost.bare_step_ns, cost.num_bare_steps)
    return [
        Fact(label="events", value=say(events)),
        Fact(label="written", value=say(bytes_text(cost.raw_bytes))),
        Fact(label="in the run", value=say(pause)),
        Fact(label="a recorded step", value=say(slowdown)),
        tables,
    ]


def sources_not_recorded(manifest: Manifest) -> dict[str, str]:
    """Source -> why nothing of it was recorded."""
    prefix = f"{NOT_RECORDED}: "
    return {
        source: word.removeprefix(prefix) for source, word in manifest.sources.items() if word.startswith(NOT_RECORDED)
    }


def not_recorded_facts(reasons: Mapping[str, str]) -> list[Fact]:
    """What was not recorded, and why, in alphabetical order."""
    return [Fact(label=field, value=say(why)) for field, why in sorted(reasons.items())]


def absent_fields(ranks: Sequence[RankSummary], reasons: Mapping[str, str]) -> dict[str, str]:
    """Of fields that may be null with their reasons, those that are null on a rank."""
    return {field: why for field, why in reasons.items() if any(getattr(rank, field, 0) is None for rank in ranks)}
