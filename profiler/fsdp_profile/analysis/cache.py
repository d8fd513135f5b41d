"""Cached answers about runs, so that a thousand ranks or runs are listed without reading their tables.

[Note: Where answers are cached]
Looking at a run writes nothing into it. What is computed while looking goes to the user's cache folder; only `run` and
`import`, which write the run anyway, store the summary of each rank beside its tables, where it travels with the run.

A cached answer is only a copy. It names the sizes of the tables it was computed from and CACHE_VERSION; one that does
not match, or is damaged, is computed again. Nothing is cached for a bundle, whose tables lie in memory.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from fsdp_profile.analysis.run import Run
from fsdp_profile.core import layout
from fsdp_profile.core.schema import TABLES

T = TypeVar("T")

CACHE_VERSION: Final = 1
"""Raise it with every change that makes a cached answer come out differently."""
ENV_CACHE: Final = "FSDP_PROFILE_CACHE"
"""Environment variable that names another folder for the cache."""
MAX_RUNS: Final = 2_000
"""Runs whose answers the cache folder holds; the ones unused for longest are removed beyond that."""
_MAX_BYTES: Final = 64 << 20


class _Entry(msgspec.Struct):
    version: int
    computed_from: str
    answer: msgspec.Raw


def cache_folder() -> Path:
    """The folder of all cached answers: FSDP_PROFILE_CACHE, else fsdp-profile below the user's cache folder."""
    named = os.environ.get(ENV_CACHE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "fsdp-profile"


def cached_of_rank(run: Run, name: str, kind: Any, *, rank: int, compute: Callable[[], T]) -> T:
    """The cached answer about one rank of a run, or the computed one.

    Args:
        run: the run.
        name: of the answer; also of its file.
        kind: type of the answer: dataclasses, enums and containers of them.
        rank: the rank whose tables the answer is computed from.
        compute: gives the answer.
    """
    if run.source is not None:
        return compute()
    stored = layout.rank_dir(run.path, rank) / f"{name}.json"
    return _cached([stored, _file(run.path, name, rank)], kind, _tables(run.path, rank), compute)


def cached_of_run(run: Run, name: str, kind: Any, *, compute: Callable[[], T]) -> T:
    """The cached answer about a whole run, computed from its manifest and all tables, or the computed one."""
    if run.source is not None:
        return compute()
    files = [run.path / layout.MANIFEST, *(path for rank in run.ranks for path in _tables(run.path, rank))]
    return _cached([_file(run.path, name)], kind, files, compute)


def read_cached(run_dir: Path, name: str, kind: type[T], *, rank: int) -> T | None:
    """The answer about one rank if it is cached and still holds; None otherwise."""
    digest = _digest(_tables(run_dir, rank))
    for path in (layout.rank_dir(run_dir, rank) / f"{name}.json", _file(run_dir, name, rank)):
        found = _read(path, kind, digest)
        if found is not None:
            answer: T = found.answer
            return answer
    return None


def store_in_run(run: Run, name: str, answer: Any, *, rank: int) -> None:
    """Write an answer about one rank beside its tables. For verbs that write the run; an unwritable folder is fine."""
    if run.source is None:
        _write(layout.rank_dir(run.path, rank) / f"{name}.json", _digest(_tables(run.path, rank)), answer)


class _Found:
    """An answer, which may be None itself."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def _cached(paths: list[Path], kind: Any, files: list[Path], compute: Callable[[], T]) -> T:
    digest = _digest(files)
    for path in paths:
        found = _read(path, kind, digest)
        if found is not None:
            known: T = found.answer
            return known
    answer = compute()
    if any(file.suffix == ".parquet" and file.exists() for file in files):  # else a growing log could not be told
        _write(paths[-1], digest, answer)
    return answer


def _file(run_dir: Path, name: str, rank: int | None = None) -> Path:
    folder = cache_folder() / hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:24]
    return (folder if rank is None else layout.rank_dir(folder, rank)) / f"{name}.json"


def _tables(run_dir: Path, rank: int) -> list[Path]:
    return [layout.table_path(run_dir, rank, name) for name in TABLES]


def _read(path: Path, kind: Any, digest: str) -> _Found | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=_Entry)
        if (found.version, found.computed_from) != (CACHE_VERSION, digest):
            return None
        return _Found(msgspec.json.decode(found.answer, type=kind))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _write(path: Path, digest: str, answer: Any) -> None:
    entry = _Entry(version=CACHE_VERSION, computed_from=digest, answer=msgspec.Raw(msgspec.json.encode(answer)))
    partial = path.with_suffix(f".partial{os.getpid()}")
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_oldest()
        partial.write_bytes(msgspec.json.encode(entry))
        partial.replace(path)  # a reader sees all of it or nothing
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _remove_oldest() -> None:
    """Keep the cache folder at MAX_RUNS runs."""
    with contextlib.suppress(OSError):
        folders = [path for path in cache_folder().iterdir() if path.is_dir()]
        if len(folders) > MAX_RUNS:
            for path in sorted(folders, key=lambda p: p.stat().st_mtime_ns)[: len(folders) - MAX_RUNS]:
                shutil.rmtree(path, ignore_errors=True)


def _digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        try:
            size = os.stat(path).st_size  # noqa: PTH116 - twelve tables of a thousand ranks
        except OSError:
            continue
        found.update(f"{path.parent.name}/{path.name} {size}\n".encode())
    return found.hexdigest()
