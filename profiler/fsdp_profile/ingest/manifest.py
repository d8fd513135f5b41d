"""Read and write `manifest.json`, whose classes are in core/manifest.py.

A newer minor schema is read (unknown keys are ignored), an unknown major is refused.
"""

from dataclasses import replace
from pathlib import Path

import msgspec

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, OutputError, SchemaError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.schema import SCHEMA_VERSION

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
    return replace(found, schema=SCHEMA_VERSION) if is_former else found


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
