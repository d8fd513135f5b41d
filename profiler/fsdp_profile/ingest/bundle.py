"""Open a bundle: one file that holds a whole run. A bundle is untrusted: it is refused unless all of it is valid.

[Note: What a bundle may hold]
A zip of members stored as they are (what is not compressed cannot be a bomb), each named in `bundle.json` with its
size and SHA-256, under a name that is allowed: the manifest and the ranks' tables. Nothing is ever unpacked
to the disk, so that no name in it can lead anywhere; a table is read from its place in the file, checked again as
it is read, and refused if it would become far larger in memory than it is in the file.
"""

import hashlib
import re
import stat
import struct
import zipfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, SchemaError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.core.schema import TABLES
from fsdp_profile.ingest.manifest import parse_manifest
from fsdp_profile.ingest.tables import empty_table, table_of_parquet

BUNDLE_VERSION: Final = "1.0"
INDEX: Final = "bundle.json"

MAX_MEMBERS: Final = 200_000
"""Tables of 15,000 ranks."""
MAX_JSON_BYTES: Final = 64 << 20
_TABLE: Final = re.compile(r"rank_(\d{5,9})/([a-z_]{1,40})\.parquet")
_LOCAL_HEADER: Final = struct.Struct("<4s5H3L2H")


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the index says of one member."""

    size_bytes: int
    sha256: str


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle.json`."""

    version: str
    members: dict[str, MemberRecord]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """Where the bytes of a member lie in the file, and what they are."""

    offset: int
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """An opened bundle: every member was read once and is what the index says."""

    path: Path
    stamp: tuple[int, int]
    """Time and size of the file."""
    members: dict[str, _Member] = field(compare=False, repr=False)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks with tables in it, in order."""
        found = (_TABLE.fullmatch(name) for name in self.members)
        return tuple(sorted({int(match[1]) for match in found if match}))

    def manifest(self) -> Manifest:
        """The run's manifest.

        Raises:
            InputError: not a manifest, or written by an unknown major version.
        """
        return parse_manifest(self._bytes(layout.MANIFEST), where=f"{self.path}: {layout.MANIFEST}")

    def table(self, name: str, *, rank: int) -> pa.Table:
        """One table of one rank; empty if it is not in the bundle.

        Raises:
            InputError: it is damaged, or would not fit in memory.
        """
        return _cached_table(self, name, rank)

    def _bytes(self, name: str) -> bytes:
        with self.path.open("rb") as file:
            return _checked(self.path, name, self.members[name], _at(file, self.members[name]))


def open_bundle(path: Path) -> Bundle:
    """Check all of a bundle and open it. See [Note: What a bundle may hold].

    Raises:
        InputError: anything in it is invalid, or the file cannot be read.
        SchemaError: written by an unknown major version.
    """
    try:
        status = path.stat()
        return _opened(path, status.st_mtime_ns, status.st_size)
    except OSError as e:
        raise InputError(f"{path}: cannot be read ({e.strerror or e})") from e


@lru_cache(maxsize=16)
def _opened(path: Path, mtime_ns: int, size: int) -> Bundle:
    members = _places(path, size)
    for needed in (INDEX, layout.MANIFEST):
        if needed not in members:
            raise _refused(path, f"has no {needed}")
        if members[needed].size_bytes > MAX_JSON_BYTES:
            raise _refused(path, f"{needed} is larger than {MAX_JSON_BYTES >> 20} MiB")
    with path.open("rb") as file:
        index = _index(path, _at(file, members.pop(INDEX)))
        if set(index.members) != set(members):
            name = min(set(index.members) ^ set(members))
            raise _refused(path, f"{_said(name)} is {'listed but not there' if name not in members else 'not listed'}")
        known = {
            name: _Member(offset=place.offset, size_bytes=place.size_bytes, sha256=index.members[name].sha256)
            for name, place in members.items()
        }
        for name, member in known.items():
            if index.members[name].size_bytes != member.size_bytes:
                raise _refused(path, f"{_said(name)} has another size than the index says")
            _checked(path, name, member, _at(file, member))
    return Bundle(path=path, stamp=(mtime_ns, size), members=known)


def _places(path: Path, size: int) -> dict[str, _Member]:
    """Where every member lies, once names, kinds and sizes are those of a bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, UnicodeDecodeError) as e:
        raise _refused(path, f"not a zip file, or cut off ({e})") from e
    if len(infos) > MAX_MEMBERS:
        raise _refused(path, f"{len(infos):,} members; the most is {MAX_MEMBERS:,}")
    found: dict[str, _Member] = {}
    end_before = 0
    with path.open("rb") as file:
        for info in sorted(infos, key=lambda info: info.header_offset):
            _allowed(path, info, found)
            begin = max(info.header_offset, 0)
            offset = _data_offset(file.seek(begin), file.read(_LOCAL_HEADER.size))
            if offset is None or info.header_offset < end_before or offset + info.file_size > size:
                raise _refused(path, f"{_said(info.filename)} overlaps another member or the end of the file")
            end_before = offset + info.file_size
            found[info.filename] = _Member(offset=offset, size_bytes=info.file_size)
    return found


def _allowed(path: Path, info: zipfile.ZipInfo, found: dict[str, _Member]) -> None:
    name = info.filename
    table = _TABLE.fullmatch(name)
    is_table = table is not None and name == f"rank_{int(table[1]):05d}/{table[2]}.parquet"
    if not is_table and name not in (INDEX, layout.MANIFEST):
        raise _refused(path, f"{_said(name)} is no file of a run")
    if name in found:
        raise _refused(path, f"{_said(name)} is in it twice")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _refused(path, f"{_said(name)} is a link or another kind of file")
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 0x1:
        raise _refused(path, f"{_said(name)} is compressed or encrypted; a bundle stores its members as they are")


def _data_offset(header_offset: int, header: bytes) -> int | None:
    """Where a member's bytes begin; None if there is no local header."""
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        return None
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def _index(path: Path, content: bytes) -> Index:
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version.split(".")[0] != BUNDLE_VERSION.split(".")[0]:
            raise SchemaError(
                f"{path}: bundle version {version[:20]!r} is not readable by this release (it reads {BUNDLE_VERSION}); "
                "upgrade fsdp-profile"
            )
        return msgspec.json.decode(content, type=Index)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise _refused(path, f"{INDEX} is not an index ({type(e).__name__})") from e


def _at(file: BinaryIO, member: _Member) -> bytes:
    file.seek(member.offset)
    return file.read(member.size_bytes)


def _checked(path: Path, name: str, member: _Member, content: bytes) -> bytes:
    if hashlib.sha256(content).hexdigest() != member.sha256:
        raise _refused(path, f"{_said(name)} has a wrong checksum")
    return content


def _said(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:60]}...")


def _refused(path: Path, why: str) -> InputError:
    return InputError(f"{path}: not a bundle that can be opened: {why}; ask for it again, or export the run again")


@lru_cache(maxsize=128)
def _cached_table(bundle: Bundle, name: str, rank: int) -> pa.Table:
    member = f"rank_{rank:05d}/{name}.parquet"
    if member not in bundle.members or name not in TABLES:
        return empty_table(name)
    return table_of_parquet(bundle._bytes(member), name, where=f"{bundle.path}: {member}")


class _Versioned(msgspec.Struct):
    version: str
