"""Read a source file that a run names, so that a person can look at it.

[Note: A run chooses nothing but a name]
A run may come from anybody. What it names is shown only if it is a Python file below a folder that the run has no say
in, reached without a single symbolic link, small, and text. The name is compared with the folder before the disk is
touched; then every part of it is opened from the part before, so nothing can be swapped for a link in between.
"""

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsdp_profile.analysis.memory.call_sites import SourceLine
from fsdp_profile.core.humanize import bytes_text

MAX_BYTES: Final = 400_000
AROUND: Final = 9
"""Lines shown before and after the chosen one."""
_MAX_CHARS: Final = 200
_SIZE_CHARS: Final = 10
SUFFIX: Final = ".py"
"""The capture names no other files."""
NOT_HERE: Final = "source file is not here"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file as it is now."""

    path: Path
    lines: tuple[str, ...]
    """As Python counts them, from line 1 on; characters that do not print are replaced."""
    changed_ns: int
    """When it was last written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotShown:
    """Why there is nothing to look at."""

    why: str


def read_source(file: str, *, folders: Sequence[Path]) -> SourceFile | NotShown:
    """The file below the first of the folders that has it. See [Note: A run chooses nothing but a name]."""
    for folder in folders:
        below = _below(file, folder)
        if below is None:
            continue
        try:
            descriptor = _open_below(folder, below)
        except (OSError, ValueError):  # absent, a link, no file, not readable, a name that no file can have
            continue
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_size > MAX_BYTES:
                return NotShown(why=f"the file is larger than {MAX_BYTES // 1000} kB")
            content = opened.read(MAX_BYTES)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return NotShown(why="the file is not UTF-8 text")
        if "\0" in text:
            return NotShown(why="the file is not text")
        return SourceFile(path=folder.joinpath(*below), lines=_lines(text), changed_ns=status.st_mtime_ns)
    return NotShown(why=NOT_HERE)


def _below(file: str, folder: Path) -> tuple[str, ...] | None:
    """The parts of the name below the folder; None where it leads out of it or is no Python file's."""
    if not file.endswith(SUFFIX):
        return None
    for base in (folder, folder.resolve()):
        wanted = Path(os.path.normpath(base / file))
        if wanted != base and wanted.is_relative_to(base):
            return wanted.relative_to(base).parts
    return None


def _open_below(folder: Path, parts: tuple[str, ...]) -> int:
    """The descriptor of a regular file; every part is opened from the one before, and no link is followed."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        # A named pipe would wait for a writer.
        found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "not a regular file")
    return found


def _lines(text: str) -> tuple[str, ...]:
    """Only line feeds and carriage returns end a line of Python; str.splitlines knows more."""
    found = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    return tuple("".join(c if c.isprintable() else "\ufffd" for c in line.expandtabs(4)) for line in found)


def excerpt(found: SourceFile, chosen: SourceLine, lines: Sequence[SourceLine]) -> str | None:
    """The code around a line with what each line holds at the peak; None where the file has no such line."""
    if not 1 <= chosen.line <= len(found.lines):
        return None
    held: dict[int, int] = {}
    for line in lines:
        if line.file == chosen.file:
            held[line.line] = held.get(line.line, 0) + line.size_bytes
    first, last = max(chosen.line - AROUND, 1), min(chosen.line + AROUND, len(found.lines))
    rows = []
    for number in range(first, last + 1):
        size = bytes_text(held[number]) if number in held else ""
        mark = ">" if number == chosen.line else " "
        text = found.lines[number - 1][:_MAX_CHARS]
        rows.append(f"{mark} {size:>{_SIZE_CHARS}}  {number:>{len(str(last))}} | {text}".rstrip())
    return "\n".join(rows)
