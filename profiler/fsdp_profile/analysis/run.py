"""A recorded run, opened: its manifest and its tables, read on demand.

Opening a run reads one small file and writes nothing; a table is read when asked for and kept in memory while its file
is unchanged.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.ingest.bundle import open_bundle
from fsdp_profile.ingest.finalize import read_unfinished
from fsdp_profile.ingest.manifest import read_manifest
from fsdp_profile.ingest.rank.convert import read_rank
from fsdp_profile.ingest.tables import empty_table, read_table

_ALWAYS: Final = ("steps", "phases", "units", "unit_spans", "collectives", "kernels")
"""Tables that the conversion of a rank writes whatever it recorded."""


class Tables(Protocol):
    """Where the tables of a run come from, when not from the folder of the run."""

    def table(self, name: str, *, rank: int) -> pa.Table:
        """One table of one rank, with the columns of schema.TABLES[name]; the same object when asked again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One recorded job."""

    path: Path
    """The run directory, or the bundle."""
    manifest: Manifest
    ranks: tuple[int, ...]
    """Ranks that recorded something here, in order."""
    source: Tables | None = None
    """None: the Parquet files below `path`."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.manifest.name

    def called(self, name: str) -> "Run":
        """The same run under another name, to distinguish it from a run with an equal name."""
        return replace(self, manifest=replace(self.manifest, name=name))

    def table(self, name: str, *, rank: int) -> pa.Table:
        """One table of one rank, with the columns of schema.TABLES[name]; empty if that source recorded nothing.

        The tables of a rank that was not converted yet are made from its capture log, in memory: nothing is written.

        Raises:
            InputError: no such rank, or its files are damaged.
        """
        if rank not in self.ranks:
            have = ", ".join(map(str, self.ranks)) or "none"
            raise InputError(f"{self.path}: rank {rank} recorded nothing here (ranks: {have})")
        if self.source is not None:
            return self.source.table(name, rank=rank)
        path = layout.table_path(self.path, rank, name)
        log = layout.capture_log(self.path, rank)
        if not path.exists() and log.exists():
            return _tables_of_log(self.path, rank, log.stat().st_mtime_ns).get(name, empty_table(name))
        if not path.exists():
            if name in _ALWAYS and not self.manifest.is_imported and _is_converted(self.path, rank):
                raise InputError(f"{path}: the table is missing, and so is what it was made of; record the run again")
            return empty_table(name)
        status = path.stat()
        return _cached_table(path, name, status.st_mtime_ns, status.st_size)


def load_run(path: Path | str) -> Run:
    """Open a run directory or a bundle. Nothing is converted and nothing is written.

    Raises:
        InputError: neither of them, or a bundle that is not to be trusted.
        SchemaError: written by an unknown major version.
    """
    run_dir = Path(path)
    if not run_dir.exists():
        raise InputError(f"{run_dir}: no such file or folder")
    if layout.is_bundle(run_dir):
        bundle = open_bundle(run_dir)
        return Run(path=run_dir, manifest=bundle.manifest(), ranks=bundle.ranks, source=bundle)
    if not layout.is_run(run_dir):
        raise InputError(f"{run_dir}: neither a run directory nor a bundle (*{layout.BUNDLE_SUFFIX})")
    manifest = read_manifest(run_dir)
    if layout.UNFINISHED in manifest.extra:
        manifest = read_unfinished(run_dir, manifest)
    return Run(path=run_dir, manifest=manifest, ranks=tuple(layout.ranks_in(run_dir)))


def _is_converted(path: Path, rank: int) -> bool:
    return any(layout.table_path(path, rank, name).exists() for name in _ALWAYS)


@lru_cache(maxsize=8)
def _tables_of_log(path: Path, rank: int, _mtime_ns: int) -> dict[str, pa.Table]:
    return read_rank(path, rank)[1]


@lru_cache(maxsize=128)
def _cached_table(path: Path, name: str, _mtime_ns: int, _size: int) -> pa.Table:
    return read_table(path, name)
