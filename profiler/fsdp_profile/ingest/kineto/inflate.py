"""The bytes of a file, inflated when they are gzip, one block at a time.

What the first bytes say counts, not the suffix. A stream that is cut or damaged gives what comes before the
damage.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from fsdp_profile.core.errors import InputError

try:
    from isal import isal_zlib
except ImportError:
    isal_zlib = None
# Both inflate with the same calls; isal is the faster one.
_INFLATE: Final[Any] = isal_zlib or zlib

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WBITS: Final = 31
READ_BYTES: Final = 1 << 16


class Bytes:
    """The content of one file; `damage` says afterwards why it ends early, "" when it does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """The content in blocks of at most `block_bytes`.

        Raises:
            InputError: no such file, or it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
                file.seek(0)
                if is_gzip:
                    yield from self._inflated(file, block_bytes)
                else:
                    yield from iter(lambda: file.read(block_bytes), b"")
        except OSError as e:
            raise InputError(f"{self.path}: cannot be read ({e.strerror or e})") from e

    def _inflated(self, file: BinaryIO, block_bytes: int) -> Iterator[bytes]:
        """Every member of the gzip file; bytes after the last one (padding) are ignored."""
        data = file.read(READ_BYTES)
        while data.startswith(GZIP_MAGIC):
            member = _INFLATE.decompressobj(GZIP_WBITS)
            while not member.eof:
                if not data and not (data := file.read(READ_BYTES)):
                    self.damage = "the gzip stream is cut"
                    break
                try:
                    block = member.decompress(data, block_bytes)
                except _INFLATE.error as e:
                    self.damage = f"the gzip stream is damaged ({e})"
                    return
                if block:
                    yield block
                data = member.unconsumed_tail
            if not member.eof:  # flushed after its end, zlib doubles what is unused
                yield member.flush()
            data = member.unused_data
            if len(data) < len(GZIP_MAGIC):
                data += file.read(READ_BYTES)
