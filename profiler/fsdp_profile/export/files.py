"""Write an exported file whole or not at all, and overwrite an existing file only on request."""

from collections.abc import Iterable
from pathlib import Path

from fsdp_profile.core.errors import OutputError


def write_file(path: Path, chunks: Iterable[bytes], *, overwrite: bool = False) -> int:
    """Write the chunks and return how many bytes that were.

    Raises:
        OutputError: it is there already, or cannot be written.
    """
    if path.is_dir() or (path.exists() and not overwrite):
        raise OutputError(f"{path}: exists; choose another name, or say --force")
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            size = sum(file.write(chunk) for chunk in chunks)
        partial.replace(path)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({e.strerror or e}); choose another place") from e
    return size
