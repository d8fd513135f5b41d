"""Load pickles that hold plain data only, such as allocator snapshots.

No class, function or persistent object is ever looked up, so nothing in a file can run; a file that asks
for one is refused. A hostile file can still ask for much memory: `load_plain_isolated` bounds that.
"""

import gc
import gzip
import io
import os
import pickle
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fsdp_profile.core.errors import InputError

DEFAULT_MAX_BYTES: Final = 8 << 30
GZIP_MAGIC: Final = b"\x1f\x8b"
ZIP_MAGIC: Final = b"PK\x03\x04"
HOW_TO_WRITE: Final = "a snapshot is written by torch.cuda.memory._dump_snapshot(path)"
READ_BYTES: Final = 1 << 20

EXIT_REFUSED: Final = 3
EXIT_OUT_OF_MEMORY: Final = 4
CHILD_CODE: Final = (
    "import sys; sys.path[:] = {path!r}; from fsdp_profile.ingest.snapshot import safe_pickle; "
    "safe_pickle._child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
)


class _RefusedError(pickle.UnpicklingError):
    """The file asks for code."""


class _TooBigError(Exception):
    """More bytes came out of the file than allowed."""


class _PlainUnpickler(pickle.Unpickler):
    """[Note: Why this is safe] Every way to code goes through `find_class` (GLOBAL, INST, EXT, STACK_GLOBAL)
    or `persistent_load`; REDUCE, NEWOBJ and BUILD only call what those brought in.
    """

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise _RefusedError(f"it asks for {f'{module_name}.{global_name}'[:80]!a}")

    def persistent_load(self, pid: Any, /) -> Any:
        raise _RefusedError("it asks for a persistent object")


class _CappedReader(io.RawIOBase):
    """Inflates a gzip file and stops after `max_bytes`: a small file cannot grow without end."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._source = gzip.GzipFile(path)
        self._left = max_bytes

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._source.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise _TooBigError
        buffer[: len(data)] = data
        return len(data)


def load_plain(path: str | Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> object:
    """The plain data (dicts, lists, tuples, numbers, text; bytes from protocol 3 on) pickled in a file.

    Any pickle protocol; gzip is recognised by its magic bytes, whatever the file is called. `max_bytes`
    limits the file and, gzipped, what comes out of it. Garbage collection is off meanwhile.

    Raises:
        InputError: missing, empty, too big, truncated, damaged, not a pickle, or it asks for code.
    """
    try:
        return _load(Path(path), max_bytes)
    except MemoryError as e:
        raise InputError(
            f"{path}: not enough memory to load it; use a machine with more, or record fewer events"
        ) from e


def load_plain_isolated(path: str | Path, *, limit_bytes: int, max_bytes: int = DEFAULT_MAX_BYTES) -> object:
    """As `load_plain`, for a file from someone else: a child process proves first that it fits.

    A few hostile bytes can ask for gigabytes. Loading is deterministic, so what passed in the child, whose
    whole address space was held to `limit_bytes`, is then loaded here. It takes twice as long.

    Raises:
        InputError: as `load_plain`, and when the limit is hit or the child dies.
    """
    command = [sys.executable, "-I", "-c", CHILD_CODE.format(path=sys.path), os.fspath(path)]
    command += [str(limit_bytes), str(max_bytes)]
    child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if child.returncode == 0:
        return load_plain(path, max_bytes=max_bytes)
    message = child.stderr.decode(errors="replace").strip()
    if child.returncode == EXIT_REFUSED and message:
        raise InputError(message)
    if child.returncode == EXIT_OUT_OF_MEMORY or "MemoryError" in message:
        raise InputError(
            f"{path}: needs more than {limit_bytes:,} bytes of memory to load; it is damaged or hostile, "
            "or the limit is too low for it"
        )
    raise InputError(
        f"{path}: the process that tried to load it died (exit code {child.returncode}); "
        "the file is damaged or hostile, do not use it"
    )


def _child(path: str, limit_bytes: int, max_bytes: int) -> None:
    """Load and throw away; how it went is in the exit code."""
    import resource  # absent on Windows, where load_plain still works

    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    try:
        _load(Path(path), max_bytes)
    except MemoryError:
        os._exit(EXIT_OUT_OF_MEMORY)
    except InputError as e:
        os.write(2, str(e).encode(errors="backslashreplace"))
        os._exit(EXIT_REFUSED)
    os._exit(0)  # at once: taking millions of objects apart would cost seconds


@contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection inside: with millions of live objects it takes longer than the work itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(path: Path, max_bytes: int) -> object:
    try:
        with paused_gc(), _open(path, max_bytes) as source:
            return _PlainUnpickler(source).load()
    except (InputError, MemoryError):
        raise
    except Exception as e:  # a damaged pickle raises whatever its bytes happen to mean
        raise InputError(f"{path}: {_reason(e, max_bytes)}") from e


def _open(path: Path, max_bytes: int) -> io.BufferedReader:
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise InputError(f"{path}: not a regular file; name the snapshot file itself")
        if state.st_size == 0:
            raise InputError(f"{path}: empty file; record it again")
        if state.st_size > max_bytes:
            raise _TooBigError
        with path.open("rb") as source:
            head = source.read(max(len(GZIP_MAGIC), len(ZIP_MAGIC)))
        if head.startswith(ZIP_MAGIC):
            raise InputError(f"{path}: a zip archive, such as torch.save writes; {HOW_TO_WRITE}")
        raw = _CappedReader(path, max_bytes) if head.startswith(GZIP_MAGIC) else io.FileIO(path)
    except OSError as e:
        raise InputError(f"{path}: cannot read it ({e.strerror or e}); check the path and its rights") from e
    return io.BufferedReader(raw, READ_BYTES)


def _reason(error: Exception, max_bytes: int) -> str:
    """What was wrong and what to do, on one line."""
    match error:
        case _RefusedError():
            return f"refused: {error}, a snapshot holds plain data only; do not open this file with pickle"
        case _TooBigError():
            return f"larger than the limit of {max_bytes:,} bytes; record fewer events (max_entries)"
        case EOFError():
            return "truncated, the file ends too early; record it again, or copy it again"
        case pickle.UnpicklingError() if "truncated" in str(error):
            return "truncated, the file ends too early; record it again, or copy it again"
        case gzip.BadGzipFile() | zlib.error():
            return "damaged gzip file; copy it again"
        case OSError():
            return f"cannot read it ({error.strerror or error}); check the disk"
    return f"not a readable pickle ({str(error)[:80]!a}); {HOW_TO_WRITE}"
