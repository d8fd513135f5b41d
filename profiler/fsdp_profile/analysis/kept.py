"""Answers kept beside what they were made of, so that a thousand ranks or runs are looked at without their tables.

A kept answer is only ever a copy. It names the tables it was made of by their sizes, and the code by its content:
one that is of other files, of another release or damaged is made again, and where none can be written (a bundle, a
folder of somebody else) nothing is kept. It holds no more than the tables do, and no export takes it along.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from fsdp_profile import layout
from fsdp_profile.analysis.run import Run
from fsdp_profile.schema import TABLES

T = TypeVar("T")

_MAX_BYTES: Final = 64 << 20
_CODE: Final = ("analysis", "ingest")
_PACKAGE: Final = Path(__file__).resolve().parents[1]
"""Nothing is kept in here: the sample runs of an installation are the installer's, who takes away what he brought."""


class _Kept(msgspec.Struct):
    made_of: str
    answer: msgspec.Raw


def kept(path: Path, kind: Any, *, made_of: Iterable[Path], compute: Callable[[], T]) -> T:
    """The answer at `path` if it was made of these files as they are, else the computed one, kept there if it can be.

    Args:
        path: the JSON file.
        kind: type of the answer: dataclasses, enums and containers of them.
        made_of: files whose sizes tell whether the answer still holds; one may be missing.
        compute: gives the answer.
    """
    files = list(made_of)
    found = _read(path, kind, _digest(files))
    if found is not None:
        told: T = found.answer
        return told
    answer = compute()
    # Asking may have turned a recording into tables: what it was made of is known only now. Where none could be written
    # there is nothing to tell that a log has grown.
    is_ours = not path.resolve().is_relative_to(_PACKAGE)
    if is_ours and any(file.suffix == ".parquet" and file.exists() for file in files):
        _write(path, _digest(files), answer)
    return answer


def kept_of_rank(run: Run, name: str, kind: Any, *, rank: int, compute: Callable[[], T]) -> T:
    """The same of one rank of a run, made of its tables."""
    if run.source is not None:
        return compute()
    path = _file(layout.rank_dir(run.path, rank), name)
    return kept(path, kind, made_of=_tables(run.path, rank), compute=compute)


def kept_before(run_dir: Path, name: str, kind: type[T], *, rank: int) -> T | None:
    """The answer of one rank that was kept and still holds; None where there is none."""
    found = _read(_file(layout.rank_dir(run_dir, rank), name), kind, _digest(_tables(run_dir, rank)))
    return found.answer if found is not None else None


def kept_of_run(run: Run, name: str, kind: Any, *, compute: Callable[[], T]) -> T:
    """The same of a whole run, made of its manifest and all tables."""
    if run.source is not None:
        return compute()
    files = [run.path / layout.MANIFEST, *(path for rank in run.ranks for path in _tables(run.path, rank))]
    return kept(_file(run.path, name), kind, made_of=files, compute=compute)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{layout.KEPT}{name}.json"


def _tables(run_dir: Path, rank: int) -> list[Path]:
    return [layout.table_path(run_dir, rank, name) for name in TABLES]


class _Found:
    """An answer, which may be None itself."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def _read(path: Path, kind: Any, digest: str) -> _Found | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=_Kept)
        return _Found(msgspec.json.decode(found.answer, type=kind)) if found.made_of == digest else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _write(path: Path, digest: str, answer: Any) -> None:
    partial = path.with_suffix(f".partial{os.getpid()}")
    content = msgspec.json.encode(_Kept(made_of=digest, answer=msgspec.Raw(msgspec.json.encode(answer))))
    try:
        partial.write_bytes(content)
        partial.replace(path)  # a reader sees all of it or nothing
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _digest(files: Iterable[Path]) -> str:
    told = hashlib.sha256(_code_digest().encode())
    for path in files:
        try:
            size = os.stat(path).st_size  # noqa: PTH116 - twelve tables of a thousand ranks
        except OSError:
            continue
        told.update(f"{path.parent.name}/{path.name} {size}\n".encode())
    return told.hexdigest()


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Of the code that gives the answers: another release may answer otherwise."""
    told = hashlib.sha256()
    for path in [_PACKAGE / "schema.py", *(p for part in _CODE for p in sorted((_PACKAGE / part).glob("*.py")))]:
        told.update(path.read_bytes())
    return told.hexdigest()
