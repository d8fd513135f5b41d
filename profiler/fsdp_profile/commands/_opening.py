"""What every verb that reads runs needs: one run from a path, and one line for whatever is wrong with its files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_profile.core.errors import FsdpProfileError, InputError

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run

MAX_NAMED = 8
"""Runs of a folder named in one line."""


def open_run(path: Path) -> Run:
    """The one run at a path, or in the folders below it.

    Raises:
        InputError: nothing there, no run in it, or more than one.
    """
    from fsdp_profile.core.layout import find_runs

    found = find_runs(path)
    if len(found) > 1:
        names = ", ".join(str(p.relative_to(path)) for p in found[:MAX_NAMED])
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        raise InputError(f"{path}: {len(found)} runs in it, name one of them (newest first): {names}{more}")
    return read_run(found[0])


def read_run(path: Path) -> Run:
    """The run at a path. A recording that nobody converted into tables yet is converted first, and stderr says so.

    Raises:
        InputError: no run there.
    """
    from fsdp_profile.analysis.run import load_run
    from fsdp_profile.core import layout
    from fsdp_profile.ingest.finalize import convert_run, is_unconverted
    from fsdp_profile.ingest.manifest import read_manifest

    if layout.is_run(path):
        manifest = read_manifest(path)
        if is_unconverted(path, manifest):
            print(f"fsdp-profile: converting the recording in {path} into tables, once", file=sys.stderr)
            convert_run(path, manifest)
    return load_run(path)


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn an error that contradictory files cause in the analysis into a one-line message.

    Raises:
        InputError: in place of an error that is not one of ours.
    """
    try:
        yield
    except FsdpProfileError:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, NotImplementedError, OSError) as e:
        what = str(e).splitlines()[0] if str(e) else "no message"
        raise InputError(
            f"{path}: its files contradict each other ({type(e).__name__}: {what}); record the run again"
        ) from e
