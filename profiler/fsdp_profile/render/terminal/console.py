"""The console of the commands: its width, and what its encoding cannot say.

Piped output is 100 columns wide unless COLUMNS says otherwise, so that a file never depends on a window.
"""

import io
import os
import sys
from typing import Final

from rich.console import Console

PIPED_COLUMNS: Final = 100


def console() -> Console:
    """A console on standard output; text is never read as markup or emoji codes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name the encoding lacks must not end the report
    return Console(width=_width(), highlight=False, markup=False, emoji=False)


def _width() -> int | None:
    """None on a terminal: rich asks it."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return None if sys.stdout.isatty() else PIPED_COLUMNS
