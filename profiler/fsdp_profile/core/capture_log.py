"""The raw capture format: what a rank's capture log holds, for its writer (capture/) and its reader (ingest/rank/).

A log is JSON lines, appended at every flush. A line is one record: an object whose `kind` is a Record and whose other
keys are the fields of that record. A CHUNK holds what was recorded since the flush before it, as tables: column name
-> list of values, all of one length. Every name and column is declared here, once.
"""

from collections.abc import Iterable
from typing import Any, Final

from fsdp_profile.core.words import Word

FILE_NAME: Final = "capture.jsonl"
KINETO_TRACE: Final = "kineto.json"
"""CUDA: the Kineto trace of the whole window, beside the log."""
KINETO_TRACES: Final = "kineto*.json"
"""Pattern of every Kineto trace beside the log."""


def kineto_step_trace(step: int, part: int) -> str:
    """CPU: name of the Kineto trace of one step, or of one part of a step that was written in several.

    >>> kineto_step_trace(3, 0), kineto_step_trace(3, 1)
    ('kineto_00003.json', 'kineto_00003_1.json')
    """
    return f"kineto_{step:05d}{f'_{part}' if part else ''}.json"


class Record(Word):
    """What a line of the log is."""

    RANK = "rank"
    """The process: the first line of every log."""
    MODEL = "model"
    """A root module's parameters, at its first forward."""
    UNITS = "units"
    """Descriptions of units (core/units.py) that are new or have changed."""
    FIRST_FORWARD = "first_forward"
    """When training began, and the libraries and devices as they were known then."""
    PREEXISTING_BLOCKS = "preexisting_blocks"
    """CPU: what live tensors held when a late recording began, and again at the first forward."""
    OPTIMIZER = "optimizer"
    """An optimizer's parameters, at its first step."""
    REWRAP = "rewrap"
    """What `run --as` did in place of what the script asked for."""
    CHUNK = "chunk"
    """Everything since the flush before."""
    UNRECORDED_STEPS = "unrecorded_steps"
    """Ends of the optimizer steps after the window, in which nothing else was recorded."""
    FAILURE = "failure"
    """The exception that ended the process."""
    END = "end"
    """The recording is over: what it lost and what it cost."""
    EXIT = "exit"
    """The process came to its end by itself, which may be long after END."""


FORMER_KINDS: Final = {"held": Record.PREEXISTING_BLOCKS, "bare_steps": Record.UNRECORDED_STEPS}
"""Kinds as earlier releases wrote them."""

LIBRARIES: Final = (
    "torch", "cuda", "device_type", "device_name", "device_total_bytes", "backend", "nccl",
)  # fmt: skip
"""Facts of FIRST_FORWARD and END: versions, the device and the process group's backend."""

FIELDS: Final[dict[Record, tuple[str, ...]]] = {
    Record.RANK: ("rank", "local_rank", "world_size", "host", "pid", "start_ns", "argv", "python", "fsdp-profile"),
    Record.MODEL: ("name", "numel", "trainable_numel", "num_params", "param_bytes", "dtypes"),
    Record.UNITS: ("units",),
    Record.FIRST_FORWARD: ("t_ns", "facts"),
    Record.PREEXISTING_BLOCKS: ("t_ns", "address", "size_bytes"),
    Record.OPTIMIZER: ("name", "num_params", "num_foreign", "foreign_bytes"),
    Record.REWRAP: ("note",),
    Record.CHUNK: (
        "step", "began_ns", "in_step", "steps", "tags", "spans", "calls", "phases", "drops", "cpu", "cuda",
        "host_states", "modules", "device", "losses", "receipt",
    ),
    Record.UNRECORDED_STEPS: ("ends",),
    Record.FAILURE: ("t_ns", "message"),
    Record.END: ("reason", "t_ns", "lost", "why_no_nvml", "flush_ns", "hook_events", *LIBRARIES),
    Record.EXIT: ("t_ns",),
}  # fmt: skip
"""The fields of each record; a writer may leave out those that it does not know."""


class EndReason(Word):
    """Why the recording ended."""

    WINDOW_ENDED = "window ended"
    PROCESS_ENDED = "process ended"


class Type(Word):
    """Type of a column of a chunk's table."""

    INT = "int"
    ADDRESS = "address"
    """An unsigned 64-bit integer."""
    FLOAT = "float"
    FLAG = "flag"
    TEXT = "text"
    CODE = "code"
    """Index into the `words` beside the table."""


Table = dict[str, Type]

TAGS: Final[Table] = {
    "t_ns": Type.INT, "address": Type.ADDRESS, "size_bytes": Type.INT, "category": Type.TEXT, "unit": Type.INT,
    "name": Type.TEXT, "weak": Type.FLAG,
}  # fmt: skip
"""Storages that a hook named. A weak tag gives way to any other tag of the same block."""
SPANS: Final[Table] = {
    "unit": Type.INT, "kind": Type.TEXT, "start_ns": Type.INT, "end_ns": Type.INT, "size_bytes": Type.INT,
    "prefetch": Type.TEXT,
}  # fmt: skip
"""What units did. `kind` is a SpanKind or one of REGIONS, `prefetch` a Prefetch or ''."""
CALLS: Final[Table] = {
    "collective": Type.TEXT, "start_ns": Type.INT, "end_ns": Type.INT, "size_bytes": Type.INT, "group_size": Type.INT,
    "unit": Type.INT, "prefetched": Type.FLAG, "group": Type.TEXT, "group_description": Type.TEXT, "dtype": Type.TEXT,
}  # fmt: skip
"""Host calls of torch.distributed."""
PHASES: Final[Table] = {"t_ns": Type.INT, "phase": Type.TEXT}
"""Phases, by the time each begins."""
DROPS: Final[Table] = {"t_ns": Type.INT, "address": Type.ADDRESS}
"""When a tensor given to a collective died; see [Note: Unreported frees] in pairing."""

HOOK_TABLES: Final = {"tags": TAGS, "spans": SPANS, "calls": CALLS, "phases": PHASES, "drops": DROPS}
"""What the hooks append, by field of CHUNK. Times are unix nanoseconds."""

ALLOCATOR: Final[Table] = {
    "t_ns": Type.INT, "address": Type.ADDRESS, "delta_bytes": Type.INT, "reported_bytes": Type.INT,
    "operator": Type.CODE, "transport": Type.INT, "site": Type.CODE, "module": Type.CODE,
}  # fmt: skip
"""Allocator events; `transport` is a row of the table of that name, or -1."""
TRANSPORT: Final[Table] = {"name": Type.CODE, "start_ns": Type.INT, "end_ns": Type.INT, "thread": Type.INT}
"""Operators of a communication library."""
OPERATORS: Final[Table] = TRANSPORT
"""Outermost operators of the tensor library that are not communication."""

CPU_TABLES: Final = {"allocator": ALLOCATOR, "transport": TRANSPORT, "operators": OPERATORS}
"""The field `cpu` of CHUNK; beside them `words`, which the codes count."""

DEVICE_SAMPLES: Final[Table] = {
    "t_ns": Type.INT, "device_used_bytes": Type.INT, "process_used_bytes": Type.INT, "device_total_bytes": Type.INT,
    "utilization_ratio": Type.FLOAT, "host_rss_bytes": Type.INT,
}  # fmt: skip
HOST_STATES: Final[Table] = {"t_ns": Type.INT, "category": Type.TEXT, "is_pinned": Type.FLAG, "size_bytes": Type.INT}
"""CUDA: what models and optimizers held on the host at the flush."""
MODULE_CALLS: Final[Table] = {"path": Type.TEXT, "start_ns": Type.INT, "end_ns": Type.INT}
"""CUDA with stacks: forwards of modules; on CPU each allocator event has its module."""
LOSSES: Final[Table] = {"step": Type.INT, "loss": Type.FLOAT}

SAMPLE_TABLES: Final = {
    "device": DEVICE_SAMPLES, "host_states": HOST_STATES, "modules": MODULE_CALLS, "losses": LOSSES,
}  # fmt: skip
"""Tables with few rows, some of them null, by field of CHUNK."""

CUDA_EVENTS: Final = ("action", "addr", "size", "stream", "time_us")
"""Columns of the caching allocator's history, named as in a memory snapshot; with stacks also SITE."""
SITE: Final = "site"
"""The line of user code that allocated: 'train.py:12 forward'."""
SEGMENT_FIELDS: Final = (
    "device", "address", "total_size", "stream", "segment_type", "segment_pool_id", "is_expandable",
)  # fmt: skip
"""Of a segment of the caching allocator, as in a memory snapshot; with its `blocks`."""
BLOCK_FIELDS: Final = ("address", "size", "requested_size", "state")

PREEXISTING_BLOCKS: Final[Table] = {"address": Type.ADDRESS, "size_bytes": Type.INT}
"""The columns of Record.PREEXISTING_BLOCKS."""

GATHER_REGION: Final = "GATHER_REGION"
"""Region around a unit's gather: a span of the log that is no SpanKind and gets into no table."""
BUCKET_REGION: Final = "BUCKET_REGION"
"""Region in which DDP makes its buckets, or reduces them."""
RECOMPUTE_REGION: Final = "RECOMPUTE_REGION"
"""Region in which a checkpointed forward runs again inside backward."""
REGIONS: Final = (GATHER_REGION, BUCKET_REGION, RECOMPUTE_REGION)


def as_columns(table: Iterable[str], rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Rows, in the order of a table's columns, as columns.

    Raises:
        ValueError: a row has more or fewer values than the table has columns.
    """
    names, values = tuple(table), list(zip(*rows, strict=True))
    return {name: list(column) for name, column in zip(names, values or [()] * len(names), strict=True)}
