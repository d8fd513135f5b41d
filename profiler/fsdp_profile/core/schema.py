"""The contract between the parts: words (enums), tables (columns) and the schema version.

Keys rank, step, unit are int; times `*_ns` are int64 nanoseconds on one axis (unix time);
sizes `*_bytes` are int64. A newer minor version is read, an unknown major is refused.
"""

from dataclasses import dataclass
from typing import Final

from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.core.words import Word

SCHEMA_VERSION: Final = "2.0"

SETUP_STEP: Final = -1
"""Step number of everything before the first forward."""

TEARDOWN_STEP: Final = -2
"""Step number of everything after the last optimizer step when no forward follows; training steps are >= 0."""

NO_UNIT: Final = -1
"""Unit number of what belongs to no unit."""

NOT_FREED: Final = (1 << 63) - 1
"""`end_ns` and `end_event` of a block still live when the recording ended."""


class Phase(Word):
    """What the training loop was doing."""

    @property
    def label(self) -> str:
        """What people read: "set-up", "forward"."""
        return "set-up" if self is Phase.SETUP else super().label

    SETUP = "SETUP"
    """Before the first forward."""
    FORWARD = "FORWARD"
    """From the root module's forward to the start of backward; the loss is part of it."""
    BACKWARD = "BACKWARD"
    """Inside `torch.autograd.backward`."""
    OPTIMIZER = "OPTIMIZER"
    """Inside `optimizer.step`."""
    EVALUATION = "EVALUATION"
    """A root module's forward with autograd off."""
    CHECKPOINT = "CHECKPOINT"
    """Saving or loading a state dict."""
    OTHER = "OTHER"
    """Between the others: data loading, gradient clipping, logging, zero_grad."""


class UnitKind(Word):
    """What gathers and reduces together."""

    @property
    def label(self) -> str:
        """What people read: the name as PyTorch writes it."""
        return "DDP bucket" if self is UnitKind.DDP_BUCKET else str(self.value)

    FSDP1 = "FSDP1"
    """One `FlatParamHandle` of FullyShardedDataParallel."""
    FSDP2 = "FSDP2"
    """One `FSDPParamGroup` of fully_shard."""
    DDP_BUCKET = "DDP_BUCKET"
    """One gradient bucket of DistributedDataParallel's reducer."""


class SpanKind(Word):
    """What a unit did in a span of time."""

    @property
    def label(self) -> str:
        """What people read: "all-gather"."""
        return super().label.replace(" ", "-")

    ALL_GATHER = "ALL_GATHER"
    """The host issues the unit's all-gather."""
    COPY_OUT = "COPY_OUT"
    """FSDP2 waits for the all-gather and copies its output into the parameters."""
    FORWARD = "FORWARD"
    """The unit's module runs forward (a recomputation when the phase is BACKWARD)."""
    BACKWARD = "BACKWARD"
    """From the unit's pre-backward to its post-backward."""
    RESHARD = "RESHARD"
    """The unit's gathered parameters are freed."""
    REDUCE = "REDUCE"
    """Post-backward: the unit's gradients are reduced and the shards kept."""
    REDUCE_SCATTER = "REDUCE_SCATTER"
    """The host issues the unit's reduce-scatter."""
    ALL_REDUCE = "ALL_REDUCE"
    """The host issues the unit's all-reduce (DDP bucket, HSDP's replicas, NO_SHARD)."""
    UNSHARDED = "UNSHARDED"
    """From the all-gather to the reshard: the time the unit's full parameters exist."""


class Prefetch(Word):
    """Who asked for an all-gather ahead of its unit's use."""

    IMPLICIT = "IMPLICIT"
    """The wrapper's default in backward: FSDP2 in reverse post-forward order, FSDP1 by its `backward_prefetch`."""
    EXPLICIT = "EXPLICIT"
    """The script: `set_modules_to_forward_prefetch`, `set_modules_to_backward_prefetch`, FSDP1's `forward_prefetch`."""


class CollectiveKind(Word):
    """One call on a process group."""

    @property
    def label(self) -> str:
        """What people read: "all-gather"."""
        return "send/receive" if self is CollectiveKind.SEND_RECV else super().label.replace(" ", "-")

    ALL_GATHER = "ALL_GATHER"
    REDUCE_SCATTER = "REDUCE_SCATTER"
    ALL_REDUCE = "ALL_REDUCE"
    BROADCAST = "BROADCAST"
    ALL_TO_ALL = "ALL_TO_ALL"
    REDUCE = "REDUCE"
    SEND_RECV = "SEND_RECV"
    BARRIER = "BARRIER"
    OTHER = "OTHER"


class Strategy(Word):
    """How the model state is spread over the ranks, as found in the process."""

    @property
    def label(self) -> str:
        """What people read: the name as PyTorch writes it."""
        return "no data parallelism" if self is Strategy.NONE else str(self.value)

    DDP = "DDP"
    FSDP1 = "FSDP1"
    FSDP2 = "FSDP2"
    HSDP = "HSDP"
    NONE = "NONE"
    """No data-parallel wrapper was seen."""


class Basis(Word):
    """How the category of an allocation was decided, strongest first."""

    TAG = "TAG"
    """A hook saw the storage and named it."""
    REGION = "REGION"
    """It was allocated inside a communication or module region of a unit."""
    LIFETIME = "LIFETIME"
    """By the phase it was allocated in and the phase it was freed in."""
    NONE = "NONE"
    """Not decided: UNKNOWN."""


class Ending(Word):
    """How a rank's process ended."""

    @property
    def label(self) -> str:
        """What people read."""
        return {
            Ending.EXCEPTION: "uncaught exception",
            Ending.SIGNAL: "killed by a signal",
            Ending.IMPORTED: "not known: imported",
            Ending.UNKNOWN: "not known",
        }.get(self, super().label)

    COMPLETED = "COMPLETED"
    """The script came to its end: exit code 0, or, under a launcher that is not ours, by itself and no exception."""
    EXITED = "EXITED"
    """sys.exit or os._exit with a code other than 0."""
    EXCEPTION = "EXCEPTION"
    """An exception nobody caught."""
    SIGNAL = "SIGNAL"
    """Killed by a signal, the launcher's own included (it ends the other ranks after a failure)."""
    IMPORTED = "IMPORTED"
    """Recorded by another tool, whose files do not record it."""
    UNKNOWN = "UNKNOWN"
    """Not seen: the launcher itself was killed, or runs elsewhere."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str
    """int64, int32, uint64, float64, bool or string (dictionary encoded)."""
    doc: str
    nullable: bool = False


def columns(*rows: tuple[str, str, str]) -> tuple[Column, ...]:
    """Columns from (name, type, meaning); a type that ends in `?` is nullable."""
    return tuple(Column(name, type_.rstrip("?"), doc, type_.endswith("?")) for name, type_, doc in rows)


TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "steps": columns(
        ("step", "int32", "optimizer step, 0-based; SETUP_STEP before the first forward"),
        ("start_ns", "int64", "the end of the step before; for step 0 the first forward"),
        ("end_ns", "int64", "after optimizer.step"),
        ("complete", "bool", "false for what follows the last optimizer step, or was cut off"),
        ("recorded", "bool", "allocator events were recorded for the whole step"),
    ),
    "phases": columns(
        ("step", "int32", "optimizer step"),
        ("phase", "string", "Phase"),
        ("start_ns", "int64", ""),
        ("end_ns", "int64", ""),
    ),
    "units": columns(
        ("unit", "int32", "number of the unit in this rank, in the order of construction"),
        ("name", "string", "module path in the script's model; '' is the root; 'bucket k' under DDP"),
        ("kind", "string", "UnitKind"),
        ("numel", "int64", "elements of the unsharded parameters, without padding"),
        ("num_params", "int32", "parameters in the unit"),
        ("sharded_bytes", "int64", "parameter bytes this rank keeps, padding included"),
        ("unsharded_bytes", "int64", "bytes of the gathered parameters, padding included"),
        ("dtype", "string", "dtype of the kept parameters"),
        ("compute_dtype", "string", "dtype of the gathered parameters"),
        ("shard_size", "int32", "ranks the unit is sharded over; 1 under DDP"),
        ("replicate_size", "int32", "replicas of the shards (HSDP, DDP)"),
        ("reshard_after_forward", "string", "yes, no, or the smaller mesh's size; '' under DDP"),
        ("sharding", "string", "FSDP1's ShardingStrategy by name; '' elsewhere"),
        ("trainable_numel", "int64?", "of numel, those that require gradients; null when not recorded"),
    ),
    "unit_spans": columns(
        ("unit", "int32", ""),
        ("kind", "string", "SpanKind"),
        ("step", "int32", ""),
        ("phase", "string", "Phase in which the span began"),
        ("start_ns", "int64", "host time"),
        ("end_ns", "int64", "host time; NOT_FREED for an UNSHARDED span still open at the end"),
        ("size_bytes", "int64", "bytes gathered, freed or reduced"),
        ("prefetched", "bool", "issued ahead of the unit's own use"),
        ("prefetch", "string?", "Prefetch; '' when not prefetched, or when the recording does not say which"),
    ),
    "allocations": columns(
        ("allocation", "int64", "number of the block; a block whose category changes has a row per part"),
        ("address", "uint64", ""),
        ("size_bytes", "int64", ""),
        ("start_ns", "int64", "alloc, or the moment the category changed"),
        ("end_ns", "int64", "free, or the moment the category changed; NOT_FREED when live at the end"),
        ("start_event", "int64", "row of memory_samples at which the bytes appear here"),
        ("end_event", "int64", "row of memory_samples at which they are gone; NOT_FREED"),
        ("category", "string", "Category"),
        ("basis", "string", "Basis"),
        ("unit", "int32", "NO_UNIT when none"),
        ("name", "string", "parameter or state name where a hook knew it; else ''"),
        ("operator", "string", "innermost operator that allocated"),
        ("step", "int32", "step of the alloc"),
        ("phase", "string", "Phase of the alloc"),
        ("stream", "int64", "device stream of the alloc; 0 on CPU"),
        ("free_unreported", "bool", "the free happened on a thread the profiler does not see"),
        ("site", "string?", "line of user code that allocated, 'train.py:12 forward'; '' without --stacks"),
        ("module", "string?", "path of the innermost module whose forward allocated, '(root)'; '' without --stacks"),
    ),
    "memory_samples": columns(
        ("t_ns", "int64", "an allocator event"),
        ("step", "int32", ""),
        ("phase", "string", "Phase"),
        ("delta_bytes", "int64", "what the event added to allocated_bytes"),
        ("allocated_bytes", "int64", "live bytes after the event: the sum over all categories"),
        ("reported_bytes", "int64?", "the allocator's own total after the event, as it reported it"),
        ("unreported_free_bytes", "int64", "in reported_bytes but freed on a thread the profiler does not see"),
        ("reserved_bytes", "int64?", "bytes the caching allocator holds; null on CPU"),
        ("active_bytes", "int64?", "allocated plus freed blocks a stream still holds; null on CPU"),
    ),
    "memory_pyramid": columns(
        ("level", "int32", "0 is the finest: of each 64 events two rows; each level above: of four times as many"),
        ("event", "int64", "row of memory_samples"),
        ("t_ns", "int64", "its moment"),
        ("step", "int32", ""),
        ("allocated_bytes", "int64", "as in memory_samples"),
        ("reserved_bytes", "int64?", "as in memory_samples"),
        ("active_bytes", "int64?", "as in memory_samples"),
        *((f"{category.lower()}_bytes", "int64", "live bytes of the category") for category in CATEGORIES),
    ),
    "collectives": columns(
        ("kind", "string", "CollectiveKind, as the strategy asked for it"),
        ("start_ns", "int64", "device or transport start"),
        ("end_ns", "int64", "device or transport end"),
        ("issue_ns", "int64", "the host call"),
        ("step", "int32", ""),
        ("phase", "string", "Phase"),
        ("unit", "int32", "NO_UNIT when it belongs to none"),
        ("size_bytes", "int64?", "bytes of the whole array (gather output, scatter input, reduced tensor)"),
        ("group_size", "int32?", "ranks in the group"),
        ("transport", "string", "what carried it: 'gloo:all_reduce', a kernel's name"),
        ("group", "string?", "name of the process group; '' when not recorded"),
        ("group_description", "string?", "what torch calls the group, such as 'default_pg' or 'mesh_shard'"),
        ("sequence", "int64?", "number of the collective in its group, where it was recorded"),
        ("dtype", "string?", "element type, such as 'float32'; '' when not recorded"),
        ("launch_ns", "int64?", "device only: when the host's launching call returned; null when not known"),
    ),
    "kernels": columns(
        ("name", "string", "device kernel, or outermost operator on CPU"),
        ("start_ns", "int64", ""),
        ("end_ns", "int64", ""),
        ("stream", "int64", "device stream, or thread on CPU"),
        ("step", "int32", ""),
        ("launch_ns", "int64?", "device only: when the host's launching call returned; null when not known"),
    ),
    "segments": columns(
        ("address", "uint64", "device only: what the caching allocator reserved, piece by piece"),
        ("size_bytes", "int64", ""),
        ("start_ns", "int64", ""),
        ("end_ns", "int64", "NOT_FREED when there at the end"),
        ("start_event", "int64", "row of memory_samples at which it is there; 0: before the first event"),
        ("end_event", "int64", "row of memory_samples at which it is gone; NOT_FREED"),
        ("stream", "int64", "stream whose pool it belongs to"),
        ("pool", "string", "private pool, such as a CUDA graph's: '0,0' is the default one; '' when not recorded"),
        ("is_expandable", "bool", "part of an expandable segment"),
    ),
    "pending_frees": columns(
        ("address", "uint64", "device only: a block that was freed while a stream still used it"),
        ("size_bytes", "int64", ""),
        ("start_ns", "int64", "the free was requested"),
        ("end_ns", "int64", "the free was completed; NOT_FREED"),
        ("start_event", "int64", "row of memory_samples"),
        ("end_event", "int64", "row of memory_samples; NOT_FREED"),
        ("stream", "int64", "stream it was allocated on"),
        ("pool", "string", "as in segments"),
    ),
    "host_states": columns(
        ("t_ns", "int64", "device only: a moment between steps"),
        ("step", "int32", "the step before it"),
        ("category", "string", "Category: parameters, gradients or optimizer states kept on the host (CPU offload)"),
        ("is_pinned", "bool", "page-locked memory"),
        ("size_bytes", "int64", "whole storages, each once; scalars apart"),
    ),
    "ooms": columns(
        ("t_ns", "int64", "an allocation failed"),
        ("event", "int64", "row of memory_samples: the last event before the failure"),
        ("asked_bytes", "int64?", "null when the error does not state it"),
        ("device_free_bytes", "int64?", "what the device said was free; null when not recorded, and on CPU"),
        ("stream", "int64", "0 on CPU"),
    ),
    "device_samples": columns(
        ("t_ns", "int64", ""),
        ("device_used_bytes", "int64?", "NVML: used on the whole device"),
        ("process_used_bytes", "int64?", "NVML: used by this process"),
        ("device_total_bytes", "int64?", "NVML: size of the device"),
        ("utilization_ratio", "float64?", "NVML: share of time with a kernel running"),
        ("host_rss_bytes", "int64?", "resident memory of the rank's process"),
    ),
    "losses": columns(
        ("step", "int32", "only with run --as: the step whose backward was called on this loss"),
        ("micro_step", "int32", "0 for the step's first backward, then 1, ..."),
        ("loss", "float64?", "the scalar that backward was called on, scaled as the script did; null: not finite"),
    ),
    "tags": columns(
        ("t_ns", "int64", ""),
        ("address", "uint64", "base address of the storage"),
        ("size_bytes", "int64", ""),
        ("category", "string", "Category"),
        ("unit", "int32", ""),
        ("name", "string", ""),
        ("weak", "bool", "gives way to any other tag of the same block"),
    ),
}
"""Table name -> columns, as written by ingest and read by analysis."""

DERIVED_TABLES: Final = ("memory_pyramid",)
"""Made from other tables, to be read faster: whoever does not find one makes it."""
