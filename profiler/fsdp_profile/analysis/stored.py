"""Answers kept beside a long run, so that who opens it next reads none of its events.

`summary.json` in the folder of the run: each answer with the release that gave it and a mark of the run's files. An
answer of another release, or of files that have changed since, does not count. A short run, a bundle and a folder
that cannot be written have none: they are asked anew.
"""

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from fsdp_profile import __version__, layout
from fsdp_profile.analysis.run import Run

T = TypeVar("T")

LONG_BYTES: Final = 2 << 20
"""Tables of fewer bytes are read faster than anybody sees."""
_MAX_BYTES: Final = 64 << 20


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    release: str
    files: str
    """Mark of the run's tables."""
    answers: dict[str, msgspec.Raw]


def stored(run: Run, name: str, question: Callable[[Run], T], *, type_: Any) -> T:
    """The answer of a question, of this type: the one that is kept, else a new one, which is kept."""
    files = _mark(run)
    if files is None:
        return question(run)
    kept = _read(run, files)
    if name in kept.answers:
        with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
            found: T = msgspec.json.decode(kept.answers[name], type=type_)
            return found
    answer = question(run)
    answers = {**_read(run, files).answers, name: msgspec.Raw(msgspec.json.encode(answer))}
    _write(run, _Kept(release=__version__, files=files, answers=answers))
    return answer


def _mark(run: Run) -> str | None:
    """Of names, times and sizes of all tables; None for what keeps no answers."""
    if run.source is not None:
        return None
    paths = sorted(run.path.glob("rank_*/*.parquet"))
    told = [(path.parent.name, path.name, (status := path.stat()).st_mtime_ns, status.st_size) for path in paths]
    if sum(size for *_, size in told) < LONG_BYTES:
        return None
    return hashlib.sha256(repr([*told, layout.stamp_of(run.path)]).encode()).hexdigest()


def _read(run: Run, files: str) -> _Kept:
    path = run.path / layout.SUMMARY
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        if path.stat().st_size <= _MAX_BYTES:
            kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
            if (kept.release, kept.files) == (__version__, files):
                return kept
    return _Kept(release=__version__, files=files, answers={})


def _write(run: Run, kept: _Kept) -> None:
    path = run.path / layout.SUMMARY
    partial = path.with_suffix(".json.partial")
    with contextlib.suppress(OSError):  # full or read-only: asked anew the next time
        partial.write_bytes(msgspec.json.encode(kept))
        partial.replace(path)
