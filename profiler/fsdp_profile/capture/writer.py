"""Append what was recorded to the rank's log: one JSON line per chunk, written at step boundaries.

Lines that were written survive a SIGKILL of the process; the reader drops a line that was cut short.
"""

import json
from pathlib import Path
from typing import Any

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import FILE_NAME, Record


class RawWriter:
    """The log of one rank. Opening it claims the rank: a second process of the same rank gets FileExistsError."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        self.folder = layout.raw_dir(run_dir, rank)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = (self.folder / FILE_NAME).open("x", encoding="utf-8")
        self.error: str | None = None
        """Why writing stopped; None while it works."""

    def write(self, kind: Record, content: dict[str, Any]) -> None:
        """Append one line. The first error (a full disk) ends the recording, never the training."""
        if self.error is not None:
            return
        try:
            self._file.write(json.dumps({"kind": kind, **content}, separators=(",", ":")))
            self._file.write("\n")
            self._file.flush()
        except (OSError, ValueError) as e:
            self.error = f"{self._file.name}: {e}"

    def close(self) -> None:
        """Close the file; errors of a full disk were noted already."""
        try:
            self._file.close()
        except OSError as e:
            self.error = self.error or f"{self._file.name}: {e}"
