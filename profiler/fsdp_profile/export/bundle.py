"""A run as one file: a zip of its manifest and tables with their checksums. The same run gives the same bytes.

Members are stored, not compressed: Parquet already is, and a reader may refuse whatever could unfold. What capture
wrote (`raw/`, Kineto traces) stays behind. See ingest/bundle.py for what a reader checks.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from typing import Final

import msgspec

from fsdp_profile.analysis.run import Run
from fsdp_profile.core import layout
from fsdp_profile.core.schema import DERIVED_TABLES, TABLES
from fsdp_profile.ingest.bundle import BUNDLE_VERSION, INDEX, Index, MemberRecord
from fsdp_profile.ingest.manifest import manifest_bytes
from fsdp_profile.ingest.tables import parquet_bytes

_ALWAYS: Final = ("steps", "units")
"""Written without rows too: they tell that the rank was there."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can tell
_REGULAR_FILE: Final = 0o100644 << 16
_UNIX: Final = 3


def bundle_bytes(run: Run) -> bytes:
    """The bundle of a run.

    Raises:
        InputError: one of its tables cannot be read.
    """
    sink = io.BytesIO()
    members = {}
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, content in _members(run):
            members[name] = MemberRecord(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            _add(archive, name, content)
        index = msgspec.json.format(msgspec.json.encode(Index(version=BUNDLE_VERSION, members=members)), indent=1)
        _add(archive, INDEX, index)
    return sink.getvalue()


def _members(run: Run) -> Iterator[tuple[str, bytes]]:
    yield layout.MANIFEST, manifest_bytes(run.manifest)
    for rank in run.ranks:
        for name in (name for name in TABLES if name not in DERIVED_TABLES):
            table = run.table(name, rank=rank)
            if table.num_rows or name in _ALWAYS:
                yield f"rank_{rank:05d}/{name}.parquet", parquet_bytes(table)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr, info.create_system = _REGULAR_FILE, _UNIX
    archive.writestr(info, content, zipfile.ZIP_STORED)
