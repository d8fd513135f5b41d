"""The manifest of a run: what was run, where, what was recorded and what it cost.

ingest/manifest.py reads and writes `manifest.json`.
"""

from dataclasses import dataclass, field
from typing import Any

from fsdp_profile.core.schema import SCHEMA_VERSION, Ending, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The trained model as one rank saw it."""

    name: str = ""
    """Class of the root module, without the wrapper's prefix."""
    numel: int = 0
    """Elements of all parameters, unsharded, without padding."""
    trainable_numel: int = 0
    num_params: int = 0
    param_bytes: int = 0
    """Bytes of all parameters, unsharded, in the dtype they are kept in."""
    dtypes: dict[str, int] = field(default_factory=dict)
    """dtype -> elements kept in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """How one rank ran and ended."""

    rank: int
    host: str = ""
    pid: int = 0
    device: str = ""
    ending: Ending = Ending.UNKNOWN
    exit_code: int | None = None
    """The process's exit code; negative for a signal, as in subprocess."""
    message: str = ""
    """One line: the exception, or the signal."""
    num_steps: int = 0
    """Complete optimizer steps seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What recording cost, measured."""

    hook_events: int = 0
    """Hook events appended, over all ranks."""
    allocator_events: int = 0
    """Allocator events kept, over all ranks."""
    flush_ns: int = 0
    """Time the slowest rank spent between steps to stop the profiler and write."""
    raw_bytes: int = 0
    """Size of what capture wrote, over all ranks."""
    convert_ns: int = 0
    """Time to turn it into tables, outside the training processes."""
    recorded_step_ns: int | None = None
    """Median time of a recorded step, the writing after it included; of all ranks, without the first two of each."""
    bare_step_ns: int | None = None
    """Median time of a step after the window; null when fewer than MIN_STEPS were seen on either side."""
    num_bare_steps: int = 0
    """Steps behind `bare_step_ns`, over all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """`manifest.json`."""

    schema: str = SCHEMA_VERSION
    name: str
    created: str
    """Local start time, ISO 8601 with offset."""
    command: list[str] = field(default_factory=list)
    script: str = ""
    script_args: list[str] = field(default_factory=list)
    strategy: Strategy = Strategy.NONE
    strategy_detail: str = ""
    """The strategy in the field's words, e.g. 'FSDP2, reshard_after_forward=True, 4 ranks'."""
    world_size: int = 0
    device_type: str = ""
    device_name: str = ""
    device_total_bytes: int | None = None
    backend: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """python, torch, cuda, nccl, fsdp-profile."""
    model: Model = Model()
    ranks: list[RankRecord] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    """Source -> 'recorded', or 'not recorded: why'."""
    not_recorded: dict[str, str] = field(default_factory=dict)
    """Field of `show --json` -> why it is null."""
    warnings: list[str] = field(default_factory=list)
    receipt: Receipt = Receipt()
    complete: bool = False
    """Every rank came to its end (Ending.COMPLETED) and all that was recorded could be read."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_imported(self) -> bool:
        """Another tool recorded it: what recording cost and how it ended are not known."""
        return "imported" in self.extra
