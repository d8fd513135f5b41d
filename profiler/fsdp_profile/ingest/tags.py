"""Tags that a user gave a run: a few words, in a file of their own beside the recording.

A recording is never changed: a bundle takes no tags, and neither does a folder that cannot be written.
"""

from pathlib import Path
from typing import Final

import msgspec

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, OutputError

MAX_TAGS: Final = 20
MAX_TAG_CHARS: Final = 40
_MAX_BYTES: Final = 64 << 10


class _File(msgspec.Struct):
    tags: list[str]


def read_tags(run: Path) -> tuple[str, ...]:
    """The tags of a run, in order; empty where it has none.

    Raises:
        InputError: the file of tags is damaged.
    """
    path = run / layout.TAGS
    if layout.is_bundle(run) or not path.is_file():
        return ()
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: larger than {_MAX_BYTES >> 10} KiB; these are not a run's tags")
        return as_tags(msgspec.json.decode(path.read_bytes(), type=_File).tags)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as e:
        raise InputError(f"{path}: not a run's tags ({e}); remove it, or write them again") from e


def write_tags(run: Path, tags: tuple[str, ...]) -> None:
    """Write the tags of a run; none removes their file.

    Raises:
        ValueError: too many of them, or one that is too long.
        OutputError: a bundle, or a folder that cannot be written.
    """
    if layout.is_bundle(run):
        raise OutputError(f"{run.name}: a bundle takes no tags; they are kept beside a run's own folder")
    path, wanted = run / layout.TAGS, as_tags(tags)
    partial = path.with_suffix(".partial")
    try:
        if not wanted:
            path.unlink(missing_ok=True)
            return
        partial.write_bytes(msgspec.json.encode(_File(tags=list(wanted))))
        partial.replace(path)
    except OSError as e:
        raise OutputError(f"{path}: cannot be written ({e.strerror or e}); the tags stay as they are") from e


def as_tags(words: "list[str] | tuple[str, ...]") -> tuple[str, ...]:
    """Words as tags: printable, without blanks around them, each once, in order.

    >>> as_tags(["b", " a ", "", "a"])
    ('a', 'b')

    Raises:
        ValueError: too many of them, or one that is too long.
    """
    found = sorted({"".join(c if c.isprintable() else " " for c in word).strip() for word in words} - {""})
    if len(found) > MAX_TAGS:
        raise ValueError(f"{len(found)} tags; a run takes {MAX_TAGS}")
    long = next((tag for tag in found if len(tag) > MAX_TAG_CHARS), None)
    if long is not None:
        raise ValueError(f"the tag '{long[:MAX_TAG_CHARS]}...' is longer than {MAX_TAG_CHARS} characters")
    return tuple(found)
