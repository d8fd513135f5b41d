"""The doorway's part on sharing: what a redaction takes out of a run, and the run as a file. Cached as data.py is."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from fsdp_dashboard.data import Damage, RunRef
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.export import formats
from fsdp_profile.export.redact.redaction import Redaction, Removal, redacted

__all__ = ["FORMATS", "PERFETTO", "Redaction", "Removal", "file_of", "removals", "tables_bytes"]

PERFETTO: Final = formats.PERFETTO.ending
FORMATS: Final = {found.ending: found.title for found in formats.FORMATS if found.title}
"""Ending -> what it is."""

Keys = tuple[tuple[str, tuple[int, int]], ...]


def tables_bytes(refs: Sequence[RunRef]) -> int:
    """What the tables of some runs, or their bundles, take on the disk."""
    return sum(
        path.stat().st_size
        for ref in refs
        for path in (ref.path.glob("rank_*/*.parquet") if ref.path.is_dir() else [ref.path])
    )


def removals(ref: RunRef, how: Redaction) -> list[Removal]:
    """What a redaction takes out of a run.

    Raises:
        InputError: the run's files do not give it.
    """
    with Damage(ref.label):
        return _removals(str(ref.path), ref.stamp, how.hide_modules, how.key)


def file_of(refs: Sequence[RunRef], ending: str, how: Redaction | None) -> bytes:
    """The content of a file, of runs as they are (None) or redacted.

    Raises:
        InputError: the runs' files do not give it.
    """
    keys = tuple((str(ref.path), ref.stamp) for ref in refs)
    with Damage(", ".join(ref.label for ref in refs)):
        return _file(keys, ending, how is not None, *((how.hide_modules, how.key) if how else (False, "")))


@st.cache_data(max_entries=16, show_spinner="Looking through the run")
def _removals(path: str, stamp: tuple[int, int], hide_modules: bool, key: str) -> list[Removal]:
    return redacted(load_run(path), Redaction(hide_modules=hide_modules, key=key))[1]


@st.cache_data(max_entries=4, show_spinner="Writing the file")
def _file(keys: Keys, ending: str, is_redacted: bool, hide_modules: bool, key: str) -> bytes:
    runs: list[Run] = [load_run(path) for path, _ in keys]
    if is_redacted:
        runs = [redacted(run, Redaction(hide_modules=hide_modules, key=key))[0] for run in runs]
    chosen = formats.format_of(ending)
    assert chosen is not None  # one of FORMATS
    return chosen.write(runs, formats.Options())
