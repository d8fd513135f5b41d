"""The manifest of a run: what was run, where, what was recorded and what it cost.

A newer minor schema is read (unknown keys are ignored), an unknown major is refused.
"""

from pathlib import Path
from typing import Any

import msgspec

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, OutputError, SchemaError
from fsdp_profile.core.schema import SCHEMA_VERSION, Ending, Strategy


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The trained model as one rank saw it."""

    name: str = ""
    """Class of the root module, without the wrapper's prefix."""
    numel: int = 0
    """Elements of all parameters, unsharded, without padding."""
    trainable_numel: int = 0
    num_params: int = 0
    param_bytes: int = 0
    """Bytes of all parameters, unsharded, in the dtype they are kept in."""
    dtypes: dict[str, int] = {}
    """dtype -> elements kept in it."""


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
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


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`."""

    schema: str = SCHEMA_VERSION
    name: str
    created: str
    """Local start time, ISO 8601 with offset."""
    command: list[str] = []
    script: str = ""
    script_args: list[str] = []
    strategy: Strategy = Strategy.NONE
    strategy_detail: str = ""
    """The strategy in the field's words, e.g. 'FSDP2, reshard_after_forward=True, 4 ranks'."""
    world_size: int = 0
    device_type: str = ""
    device_name: str = ""
    device_total_bytes: int | None = None
    backend: str = ""
    versions: dict[str, str] = {}
    """python, torch, cuda, nccl, fsdp-profile."""
    model: Model = Model()
    ranks: list[RankRecord] = []
    sources: dict[str, str] = {}
    """Source -> 'recorded', or 'not recorded: why'."""
    not_recorded: dict[str, str] = {}
    """Field of `show --json` -> why it is null."""
    warnings: list[str] = []
    receipt: Receipt = Receipt()
    complete: bool = False
    """Every rank came to its end (Ending.COMPLETED) and all that was recorded could be read."""
    extra: dict[str, Any] = {}

    @property
    def is_imported(self) -> bool:
        """Another tool recorded it: what recording cost and how it ended are not known."""
        return "imported" in self.extra


READABLE_MAJORS = ("1", SCHEMA_VERSION.split(".")[0])
"""Major versions that are read; the tables of schema 1 get the category codes of today (ingest/tables.py)."""
_MAX_MANIFEST_BYTES = 64 << 20  # a manifest of 100,000 ranks stays under this


def read_manifest(run_dir: Path) -> Manifest:
    """The manifest of a run directory.

    Raises:
        InputError: missing or not a manifest.
        SchemaError: written by an unknown major version.
    """
    path = run_dir / layout.MANIFEST
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise InputError(f"{path}: larger than {_MAX_MANIFEST_BYTES >> 20} MiB; this is not a run's manifest")
        content = path.read_bytes()
    except OSError as e:
        raise InputError(f"{path}: cannot be read ({e.strerror or e}); give a run directory") from e
    return parse_manifest(content, where=str(path))


def parse_manifest(content: bytes, *, where: str) -> Manifest:
    """The manifest in a file's content; `where` is what errors call it.

    Raises:
        InputError: not a manifest.
        SchemaError: written by an unknown major version.
    """
    try:
        version = msgspec.json.decode(content, type=_Versioned).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"{where}: not a run's manifest ({e})") from e
    if version.split(".")[0] not in READABLE_MAJORS:
        raise SchemaError(
            f"{where}: schema {version} is not readable by this release (it reads {SCHEMA_VERSION}); "
            "upgrade fsdp-profile"
        )
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"{where}: not a run's manifest ({e})") from e
    is_former = version.split(".")[0] != SCHEMA_VERSION.split(".")[0]
    return msgspec.structs.replace(found, schema=SCHEMA_VERSION) if is_former else found


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Write the manifest so that a reader sees the old one or the new one, never half of it.

    Raises:
        OutputError: the folder cannot be written.
    """
    path = run_dir / layout.MANIFEST
    partial = path.with_suffix(".json.partial")
    try:
        partial.write_bytes(manifest_bytes(manifest))
        partial.replace(path)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({e.strerror or e})") from e


def manifest_bytes(manifest: Manifest) -> bytes:
    """The content of `manifest.json`."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


class _Versioned(msgspec.Struct):
    schema: str
